#include "recipe/text_encoder_recipe.hpp"

#include <utility>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/memory_config.hpp"

namespace diffuse {
namespace {

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

}  // namespace

Encoder build_text_encoder(ConfigReader& section, TensorBook& book, std::vector<std::string>& notes) {
  const auto& facts = text_encoder_facts(section);
  section.read_as(facts.keys);
  const auto stack = names::kTextEncoder;
  const auto layers = layers_of(book.headers(), stack.layers);
  const auto model = read_text_encoder(section, facts, layers);
  BlockBuilder builder(book, facts, model, stack.layers);
  const std::string root(stack.root);
  Encoder encoder;
  encoder.hidden = encoder.width = model.hidden;
  encoder.max_positions = model.max_positions;
  encoder.vocab = model.vocab;
  const auto shared = std::string(names::kTextEncoderShared) + ".weight";
  const auto own = builder.module(root, names::kEmbedding) + ".weight";
  // Tied where the weights have one of the two, or both and the same.
  const auto embedding = book.has(own) ? own : shared;
  book.take(embedding, {model.vocab, model.hidden});
  if (book.has(shared) && book.has(own)) {
    book.take(shared, book.headers().at(shared).shape);
    notes.push_back("'" + own + "' is stored beside '" + shared + "': the encoder uses its own");
  }
  Front front;
  front.embedding = matrix_rows(embedding, 0, model.vocab, model.hidden);
  encoder.front = std::move(front);
  for (std::int64_t layer = 0; layer < layers; ++layer) encoder.blocks.push_back(builder.block(layer));
  encoder.norm = builder.norm(builder.module(root, names::kFinalNorm), model.hidden);
  return encoder;
}

}  // namespace diffuse
