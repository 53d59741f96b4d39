#include "recipe/memory_recipe.hpp"

#include <set>
#include <string>

#include "core/error.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/memory_config.hpp"
#include "recipe/sinusoids.hpp"

namespace diffuse {
namespace {

struct FoundHalves {
  names::MemoryStack names;
  std::int64_t encoder = 0;  // layers
  std::int64_t decoder = 0;
};

FoundHalves find_halves(const TensorHeaders& headers) {
  for (const auto& stack : names::kMemoryStacks) {
    const auto decoder = count_layers(headers, stack.decoder.layers);
    const auto encoder = count_layers(headers, stack.encoder.layers);
    if (decoder > 0 && encoder > 0) return {stack, encoder, decoder};
  }
  throw_refused("cannot run yet: the weights have no encoder and decoder under names that this build knows");
}

class Builder {
 public:
  Builder(ConfigReader& config, const Facts& facts, TensorBook& book, Recipe& recipe)
      : memory_(*facts.memory),
        book_(book),
        recipe_(recipe),
        halves_(find_halves(book.headers())),
        model_(read_memory_config(config, facts, halves_.encoder, halves_.decoder)),
        encoder_(book, facts, model_.encoder, halves_.names.encoder.layers),
        decoder_(book, facts, model_.decoder, halves_.names.decoder.layers) {}

  void build() {
    recipe_.shape = "encoder memory";
    recipe_.hidden = model_.decoder.hidden;
    recipe_.vocab = model_.decoder.vocab;
    recipe_.max_positions = model_.decoder.max_positions;
    build_encoder();
    build_decoder();
    note_copies();
  }

 private:
  void build_encoder() {
    const auto& model = model_.encoder;
    const std::string root(halves_.names.encoder.root);
    auto& encoder = recipe_.encoder.emplace();
    encoder.hidden = encoder.width = model.hidden;
    encoder.max_positions = model.max_positions;
    if (memory_.reads_frames) {
      encoder.front = frames_front(root);
    } else {
      encoder.vocab = model.vocab;
      encoder.front = token_front(encoder_, model, root);
    }
    for (std::int64_t layer = 0; layer < halves_.encoder; ++layer)
      encoder.blocks.push_back(encoder_.block(layer));
    if (memory_.final_norm)
      encoder.norm = encoder_.norm(encoder_.module(root, names::kFinalNorm), model.hidden);
  }

  void build_decoder() {
    const auto& model = model_.decoder;
    const std::string root(halves_.names.decoder.root);
    recipe_.front = token_front(decoder_, model, root);
    for (std::int64_t layer = 0; layer < halves_.decoder; ++layer)
      recipe_.blocks.push_back(decoder_.block(layer));
    auto& back = recipe_.back;
    if (memory_.final_norm) back.norm = decoder_.norm(decoder_.module(root, names::kFinalNorm), model.hidden);
    back.scale = model_.logits_scale;
    const auto head = decoder_.module("", names::kHead) + ".weight";
    back.tied = model.tied && !book_.has(head);
    back.head = back.tied ? recipe_.front.embedding : table(head, model.vocab, model.hidden);
    if (model.tied && !back.tied) {
      recipe_.notes.push_back("tie_word_embeddings is in effect and the weights have a head of their own, '" +
                              head + "': that one is used");
    }
    const std::string bias(names::kLogitsBias);
    if (memory_.logits_bias == Presence::stored && book_.has(bias)) {
      book_.take(bias, {1, model.vocab});
      back.head_bias = vector_part(bias, 0, model.vocab);
    }
  }

  // Taken once, however many parts use it.
  MatrixRef table(const std::string& tensor, std::int64_t rows, std::int64_t cols) {
    if (tables_.insert(tensor).second) book_.take(tensor, {rows, cols});
    return matrix_rows(tensor, 0, rows, cols);
  }

  // Both halves use the shared table where it is stored: classes tie their own ones to it.
  Front token_front(BlockBuilder& builder, const ModelConfig& model, const std::string& root) {
    const auto shared = std::string(halves_.names.shared) + ".weight";
    const auto own = builder.module(root, names::kEmbedding) + ".weight";
    Front front;
    front.embedding = table(book_.has(shared) ? shared : own, model.vocab, model.hidden);
    front.scale = model.embedding_scale;
    const auto positions = builder.module(root, names::kPositions) + ".weight";
    const auto count = model.max_positions + model_.position_offset;
    switch (memory_.positions) {
      case PositionKind::learned:
        front.positions = table(positions, count, model.hidden);
        break;
      case PositionKind::sinusoids:
        if (book_.has(positions)) {
          front.positions = table(positions, count, model.hidden);
        } else {
          front.sinusoids = make_sinusoids(memory_.positions, model.hidden, count);
        }
        break;
      case PositionKind::sinusoids_single:
      case PositionKind::sinusoids_cosines:
        front.sinusoids = make_sinusoids(memory_.positions, model.hidden, count);
        break;
      case PositionKind::relative_bias:
      case PositionKind::relative_bias_each:
        break;
    }
    front.position_offset = model_.position_offset;
    if (memory_.embedding_norm)
      front.norm = builder.norm(builder.module(root, names::kEmbeddingNorm), model.hidden);
    return front;
  }

  FramesFront frames_front(const std::string& root) {
    constexpr std::int64_t kWidth = 3;
    const auto& model = model_.encoder;
    FramesFront front;
    front.features = model_.features;
    front.frames = 2 * model.max_positions;
    std::int64_t inputs = model_.features;
    std::int64_t stride = 1;
    for (const auto name : names::kConvolutions) {
      const auto module = root + std::string(name);
      book_.take(module + ".weight", {model.hidden, inputs, kWidth});
      book_.take(module + ".bias", {model.hidden});
      front.convolutions.push_back(
          {.weight = matrix_rows(module + ".weight", 0, model.hidden, inputs * kWidth),
           .bias = vector_part(module + ".bias", 0, model.hidden),
           .inputs = inputs,
           .outputs = model.hidden,
           .width = kWidth,
           .stride = stride,
           .padding = 1,
           .activation = Activation::gelu_erf});
      inputs = model.hidden;
      stride = 2;
    }
    front.positions =
        table(encoder_.module(root, names::kPositions) + ".weight", model.max_positions, model.hidden);
    return front;
  }

  // Tables that a class ties to the shared one, stored beside it. The class does not look at them either.
  void note_copies() {
    const auto shared = std::string(halves_.names.shared) + ".weight";
    if (!book_.has(shared)) return;
    for (const auto root : {halves_.names.encoder.root, halves_.names.decoder.root}) {
      for (const auto name : names::kEmbedding) {
        const auto copy = std::string(root) + std::string(name) + ".weight";
        const auto found = book_.headers().find(copy);
        if (found == book_.headers().end()) continue;
        book_.take(copy, found->second.shape);
        recipe_.notes.push_back("'" + copy + "' is a copy of '" + shared + "' and is not read");
      }
    }
  }

  const MemoryFacts& memory_;
  TensorBook& book_;
  Recipe& recipe_;
  FoundHalves halves_;
  MemoryConfig model_;
  BlockBuilder encoder_, decoder_;
  std::set<std::string> tables_;
};

}  // namespace

void build_memory_recipe(ConfigReader& config, const Facts& facts, TensorBook& book, Recipe& recipe) {
  Builder(config, facts, book, recipe).build();
}

}  // namespace diffuse
