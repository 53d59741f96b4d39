#include "recipe/build.hpp"

#include <algorithm>
#include <string_view>

#include "core/error.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/codebook_recipe.hpp"
#include "recipe/config_reader.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/facts.hpp"
#include "recipe/known_keys.hpp"
#include "recipe/leftovers.hpp"
#include "recipe/memory_recipe.hpp"
#include "recipe/model_config.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void refuse_obstacles(const Json& config, bool reads_encoder) {
  std::vector<std::string> reasons;
  for (const auto& [key, value] : config.items()) {
    if (reads_encoder && key == keys::kReadsEncoder.front()) continue;
    if (auto reason = obstacle(key, value)) reasons.push_back(std::move(*reason));
  }
  if (!reasons.empty()) throw_refused("cannot run yet: " + listed(reasons));
}

const Facts& facts_for(const std::string& family, const Json& config, const RecipeOptions& options,
                       Recipe& recipe) {
  const auto* const row = facts_of(family);
  const auto python = config.find("auto_map");
  const bool has_python = python != config.end() && !says_nothing(*python);
  if (row != nullptr) {
    if (has_python)
      recipe.notes.push_back("its own Python (auto_map) is ignored: this build knows the family");
    return *row;
  }
  if (has_python) {
    throw_refused(
        "model_type " + shown(family) +
        " brings its own Python (auto_map), which is never run, and this build has no facts about it");
  }
  if (!contains(options.accept, keys::kModelType.front())) {
    throw_refused("cannot run yet: this build has no facts about model_type " + shown(family) +
                  "; --accept model_type takes it for a plain decoder");
  }
  recipe.accepted.emplace_back(keys::kModelType.front());
  recipe.notes.push_back("model_type " + shown(family) +
                         " is unknown and taken for a plain decoder, as accepted");
  return plain_facts();
}

struct FoundStack {
  names::Stack stack;
  std::int64_t depth = 0;
};

FoundStack find_stack(const TensorHeaders& headers) {
  std::vector<FoundStack> found;
  for (const auto& stack : names::kStacks) {
    if (const auto depth = count_layers(headers, stack.layers); depth > 0) found.push_back({stack, depth});
  }
  if (found.empty())
    throw_refused("cannot run yet: the weights have no stack of layers under a name that this build knows");
  if (found.size() > 1) {
    throw_refused("cannot run yet: the weights have two stacks of layers, " +
                  std::string(found[0].stack.layers) + "* and " + std::string(found[1].stack.layers) + "*");
  }
  return found.front();
}

MatrixRef take_table(TensorBook& book, const std::string& tensor, std::int64_t rows, std::int64_t cols) {
  book.take(tensor, {rows, cols});
  return matrix_rows(tensor, 0, rows, cols);
}

void build_ends(TensorBook& book, BlockBuilder& builder, const Facts& facts, const ModelConfig& model,
                const std::string& root, Recipe& recipe) {
  auto& front = recipe.front;
  front.embedding =
      take_table(book, builder.module(root, names::kEmbedding) + ".weight", model.vocab, model.hidden);
  front.scale = model.embedding_scale;
  if (facts.learned_positions) {
    front.positions = take_table(book, builder.module(root, names::kPositions) + ".weight",
                                 model.max_positions, model.hidden);
  }

  auto& back = recipe.back;
  back.norm = builder.norm(builder.module(root, names::kFinalNorm), model.hidden);
  back.softcap = model.logits_softcap;
  const auto head = builder.module("", names::kHead) + ".weight";
  const bool has_head = book.has(head);
  back.tied = model.tied && !has_head;
  back.head = back.tied ? front.embedding : take_table(book, head, model.vocab, model.hidden);
  if (model.tied && has_head) {
    // Transformers ties the two only where they are equal, so the stored head is right either way.
    recipe.notes.push_back("tie_word_embeddings is set and the weights have a head of their own, '" + head +
                           "': that one is used");
  }
}

void build_decoder(ConfigReader& reader, const Facts& facts, TensorBook& book, Recipe& recipe) {
  recipe.shape = "autoregressive";
  const auto [stack, depth] = find_stack(book.headers());
  const auto model = read_model_config(reader, facts, depth);
  recipe.hidden = model.hidden;
  recipe.vocab = model.vocab;
  recipe.max_positions = model.max_positions;
  recipe.ropes = model.ropes;
  BlockBuilder builder(book, facts, model, stack.layers);
  build_ends(book, builder, facts, model, std::string(stack.root), recipe);
  for (std::int64_t layer = 0; layer < depth; ++layer) recipe.blocks.push_back(builder.block(layer));
}

}  // namespace

Recipe build_recipe(const Json& config, const TensorHeaders& headers, const RecipeOptions& options) {
  ConfigReader reader(config);
  const auto family = reader.text(keys::kModelType);
  const auto* const row = family ? facts_of(*family) : nullptr;
  if (row != nullptr && !row->obstacle.empty())
    throw_refused("cannot run yet: " + std::string(row->obstacle) + " (model_type " + shown(*family) + ")");
  const bool reads_encoder = row != nullptr && row->memory.has_value();
  refuse_obstacles(config, reads_encoder);
  if (!family) throw_refused("config.json does not state 'model_type'");
  reader.mark_read("auto_map");

  Recipe recipe;
  recipe.model_type = *family;
  const auto& facts = facts_for(*family, config, options, recipe);
  reader.read_as(facts.keys);
  TensorBook book(headers);
  if (reads_encoder && facts.memory->walks_codebooks) {
    build_codebook_recipe(reader, facts, book, recipe);
  } else if (reads_encoder) {
    build_memory_recipe(reader, facts, book, recipe);
  } else {
    build_decoder(reader, facts, book, recipe);
  }
  refuse_leftovers({&reader}, book, options, recipe);
  return recipe;
}

}  // namespace diffuse
