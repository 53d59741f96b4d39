#include "recipe/codebook_recipe.hpp"

#include <string>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/codec_recipe.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/memory_config.hpp"
#include "recipe/sinusoids.hpp"

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

std::int64_t layers_in(const TensorBook& book, const names::Stack& stack) {
  const auto layers = count_layers(book.headers(), stack.layers);
  if (layers == 0)
    throw_refused("cannot run yet: the weights have no layers under '" + std::string(stack.layers) + "'");
  return layers;
}

// The family of the text encoder has a row of its own: a token encoder whose positions are relative.
const Facts& text_encoder_facts(ConfigReader& section) {
  const auto family = section.text(keys::kModelType).value_or("t5");
  const auto* const facts = facts_of(family);
  const bool relative = facts != nullptr && facts->memory &&
                        (facts->memory->positions == PositionKind::relative_bias ||
                         facts->memory->positions == PositionKind::relative_bias_each);
  if (!relative)
    throw_refused("cannot run yet: its text encoder is " + shown(family) + ", not T5 or one of its kin");
  return *facts;
}

MatrixRef table(TensorBook& book, const std::string& tensor, std::int64_t rows, std::int64_t cols) {
  book.take(tensor, {rows, cols});
  return matrix_rows(tensor, 0, rows, cols);
}

void build_text_encoder(ConfigReader& section, TensorBook& book, Recipe& recipe) {
  const auto& facts = text_encoder_facts(section);
  const auto stack = names::kTextEncoder;
  const auto layers = layers_in(book, stack);
  const auto model = read_text_encoder(section, facts, layers);
  BlockBuilder builder(book, facts, model, stack.layers);
  const std::string root(stack.root);
  auto& encoder = recipe.encoder.emplace();
  encoder.hidden = encoder.width = model.hidden;
  encoder.max_positions = model.max_positions;
  encoder.vocab = model.vocab;
  const auto shared = std::string(names::kTextEncoderShared) + ".weight";
  const auto own = builder.module(root, names::kEmbedding) + ".weight";
  Front front;
  front.embedding = table(book, book.has(shared) ? shared : own, model.vocab, model.hidden);
  if (book.has(shared) && book.has(own)) {
    book.pass_over(own);
    recipe.notes.push_back("'" + own + "' is a copy of '" + shared + "' and is not read");
  }
  encoder.front = front;
  for (std::int64_t layer = 0; layer < layers; ++layer) encoder.blocks.push_back(builder.block(layer));
  encoder.norm = builder.norm(builder.module(root, names::kFinalNorm), model.hidden);
}

// What the decoder reads is as wide as its rows.
void build_projection(std::int64_t hidden, TensorBook& book, Encoder& encoder) {
  if (encoder.width == hidden) return;
  const auto module = std::string(names::kMemoryProjection);
  Projection projection;
  projection.weight = table(book, module + ".weight", hidden, encoder.width);
  book.take(module + ".bias", {hidden});
  projection.bias = vector_part(module + ".bias", 0, hidden);
  encoder.projection = projection;
  encoder.hidden = hidden;
}

void build_decoder(ConfigReader& section, const Facts& facts, TensorBook& book, Recipe& recipe) {
  const auto stack = names::kCodebookDecoder;
  const auto layers = layers_in(book, stack);
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
  build_text_encoder(section_of(config, "text_encoder"), book, recipe);
  build_decoder(decoder, facts, book, recipe);
  build_projection(recipe.hidden, book, *recipe.encoder);
  const CodecUse use = {.codebooks = recipe.codebooks,
                        .channels = decoder.integer(keys::kChannels, 1, 2).value_or(1),
                        .vocab = recipe.vocab / recipe.codebooks};
  recipe.codec = build_codec(section_of(config, "audio_encoder"), use, book);
}

}  // namespace diffuse
