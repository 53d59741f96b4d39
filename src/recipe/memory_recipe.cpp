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
    note_tables();
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
      encoder.front = token_front(encoder_, model, root, decoder_table());
    }
    for (std::int64_t layer = 0; layer < halves_.encoder; ++layer)
      encoder.blocks.push_back(encoder_.block(layer));
    if (memory_.final_norm)
      encoder.norm = encoder_.norm(encoder_.module(root, names::kFinalNorm), model.hidden);
  }

  void build_decoder() {
    const auto& model = model_.decoder;
    const std::string root(halves_.names.decoder.root);
    recipe_.front = token_front(decoder_, model, root, encoder_table());
    for (std::int64_t layer = 0; layer < halves_.decoder; ++layer)
      recipe_.blocks.push_back(decoder_.block(layer));
    pass_over_cross_bias();
    auto& back = recipe_.back;
    if (memory_.final_norm) back.norm = decoder_.norm(decoder_.module(root, names::kFinalNorm), model.hidden);
    back.scale = model_.logits_scale;
    const auto head = decoder_.module("", names::kHead) + ".weight";
    if (model.tied && !book_.has(head)) {
      back.head = tied_head(model);
    } else {
      back.head = table(head, model.vocab, model.hidden);
    }
    back.tied = back.head.tensor == recipe_.front.embedding.tensor;
    if (model.tied && book_.has(head)) {
      recipe_.notes.push_back("tie_word_embeddings is in effect and the weights have a head of their own, '" +
                              head + "': that one is used");
    }
    const std::string bias(names::kLogitsBias);
    if (memory_.logits_bias == Presence::stored && book_.has(bias)) {
      book_.take(bias, {1, model.vocab});
      back.head_bias = vector_part(bias, 0, model.vocab);
    }
  }

  void pass_over_cross_bias() {
    const auto bias = std::string(halves_.names.decoder.layers) + std::string(names::kCrossPositionBias);
    if (memory_.positions != PositionKind::relative_bias || !book_.has(bias)) return;
    book_.take(bias, book_.headers().at(bias).shape);
    recipe_.notes.push_back("'" + bias + "' is not read: such attention to the encoder knows no positions");
  }

  // Taken once, however many parts use it.
  MatrixRef table(const std::string& tensor, std::int64_t rows, std::int64_t cols) {
    if (tables_.insert(tensor).second) book_.take(tensor, {rows, cols});
    return matrix_rows(tensor, 0, rows, cols);
  }

  std::string shared_table() const { return std::string(halves_.names.shared) + ".weight"; }
  std::string encoder_table() const { return table_under(halves_.names.encoder.root); }
  std::string decoder_table() const { return table_under(halves_.names.decoder.root); }
  // By the one name that classes with halves have for it.
  static std::string table_under(names::Name root) {
    return std::string(root) + std::string(names::kEmbedding.front()) + ".weight";
  }

  // What a class ties the head to: the shared table, or the decoder's where it has none.
  MatrixRef tied_head(const ModelConfig& model) {
    if (book_.has(shared_table())) return table(shared_table(), model.vocab, model.hidden);
    if (book_.has(encoder_table()) && book_.has(decoder_table())) {
      throw_refused("cannot run yet: the weights have '" + encoder_table() + "' and '" + decoder_table() +
                    "' and neither a head nor '" + shared_table() + "', so that either may be the head");
    }
    return recipe_.front.embedding;
  }

  // A class ties tables only where the weights do not have them one by one, or where they are equal: a half
  // that has one of its own uses it, else the shared one, else the other half's.
  Front token_front(BlockBuilder& builder, const ModelConfig& model, const std::string& root,
                    const std::string& other) {
    auto used = table_under(root);
    if (!book_.has(used) && book_.has(shared_table())) used = shared_table();
    if (!book_.has(used) && book_.has(other) && model.tied) used = other;
    Front front;
    front.embedding = table(used, model.vocab, model.hidden);
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

  // A shared table that stands beside those of the halves may be used by nothing.
  void note_tables() {
    const auto shared = shared_table();
    if (!book_.has(shared)) return;
    for (const auto& own : {encoder_table(), decoder_table()}) {
      if (tables_.contains(own))
        recipe_.notes.push_back("'" + own + "' is stored beside '" + shared + "': its half uses its own");
    }
    if (tables_.contains(shared)) return;
    book_.take(shared, book_.headers().at(shared).shape);
    recipe_.notes.push_back("'" + shared + "' is not read: the halves and the head have tables of their own");
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
