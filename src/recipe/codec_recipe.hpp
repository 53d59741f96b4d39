#pragma once
// The codec of a model that answers with codes of sound.

#include "recipe/config_reader.hpp"
#include "recipe/sound_codec.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

// What the answering stack makes: `codebooks` streams of ids below `vocab`, which take turns between
// `channels` of sound.
struct CodecUse {
  std::int64_t codebooks = 1;
  std::int64_t channels = 1;
  std::int64_t vocab = 0;
};

// Reads an EnCodec's section and takes the tensors of its decoder and codebooks; those of its encoder are
// passed over. Throws refused for a codec of another kind, bad data where its codebooks do not hold what the
// stack makes; and as TensorBook and ConfigReader do.
SoundCodec build_codec(ConfigReader& section, const CodecUse& use, TensorBook& book);

}  // namespace diffuse
