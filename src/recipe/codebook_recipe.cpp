#include "recipe/codebook_recipe.hpp"

#include <string>

#include "core/error.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/codec_recipe.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/memory_config.hpp"
#include "recipe/sinusoids.hpp"
#include "recipe/text_encoder_recipe.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostCodebooks = 64;

ConfigReader& section_of(ConfigReader& config, std::string_view name) {
  auto* const section = config.object(name);
  if (section == nullptr) {
    throw_refused("cannot run yet: config.json has no section '" + std::string(name) +
                  "'; classes fill it with defaults that this build does not know");
  }
  return *section;
}

MatrixRef table(TensorBook& book, const std::string& tensor, std::int64_t rows, std::int64_t cols) {
  book.take(tensor, {rows, cols});
  return matrix_rows(tensor, 0, rows, cols);
}

// What the decoder reads is as wide as its rows.
void build_projection(std::int64_t hidden, TensorBook& book, Encoder& encoder) {
  if (encoder.width == hidden) return;
  const auto module = std::string(names::kMemoryProjection);
  Projection projection;
  projection.weight = table(book, module + ".weight", hidden, encoder.width);
  book.take(module + ".bias", {hidden});
  projection.bias = vector_part(module + ".bias", 0, hidden);
  encoder.projections.push_back(std::move(projection));
  encoder.hidden = hidden;
}

void build_codebook_decoder(ConfigReader& section, const Facts& facts, TensorBook& book, Recipe& recipe) {
  const auto stack = names::kCodebookDecoder;
  const auto layers = layers_of(book.headers(), stack.layers);
  const auto model = read_codebook_decoder(section, facts, layers);
  BlockBuilder builder(book, facts, model, stack.layers);
  const std::string root(stack.root);
  recipe.hidden = model.hidden;
  recipe.codebooks = section.integer(keys::kCodebooks, 1, kMostCodebooks).value_or(4);
  recipe.vocab = recipe.codebooks * model.vocab;
  recipe.max_positions = model.max_positions;
  for (std::int64_t codebook = 0; codebook < recipe.codebooks; ++codebook) {
    const auto number = std::to_string(codebook) + ".weight";
    // The row behind the codes is that of padding.
    const auto embedding = root + std::string(names::kEmbedding.front()) + "." + number;
    auto rows = table(book, embedding, model.vocab + 1, model.hidden);
    auto head = table(book, std::string(names::kCodebookHeads) + number, model.vocab, model.hidden);
    if (codebook == 0) {
      recipe.front.embedding = std::move(rows);
      recipe.back.head = std::move(head);
    } else {
      recipe.front.further.push_back(std::move(rows));
      recipe.back.further.push_back(std::move(head));
    }
  }
  recipe.front.sinusoids = make_sinusoids(facts.memory->positions, model.hidden, model.max_positions);
  for (std::int64_t layer = 0; layer < layers; ++layer) recipe.blocks.push_back(builder.block(layer));
  recipe.back.norm = builder.norm(builder.module(root, names::kFinalNorm), model.hidden);
}

}  // namespace

void build_codebook_recipe(ConfigReader& config, const Facts& facts, TensorBook& book, Recipe& recipe) {
  config.mark_read(keys::kReadsEncoder.front());
  recipe.shape = "encoder memory";
  auto& decoder = section_of(config, "decoder");
  recipe.encoder = build_text_encoder(section_of(config, "text_encoder"), book, recipe.notes);
  build_codebook_decoder(decoder, facts, book, recipe);
  build_projection(recipe.hidden, book, *recipe.encoder);
  const CodecUse use = {.codebooks = recipe.codebooks,
                        .channels = decoder.integer(keys::kChannels, 1, 2).value_or(1),
                        .vocab = recipe.vocab / recipe.codebooks};
  recipe.codec = build_codec(section_of(config, "audio_encoder"), use, book);
}

}  // namespace diffuse
