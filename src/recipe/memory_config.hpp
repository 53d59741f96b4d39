#pragma once
// The numbers of the two halves of an encoder-decoder, read once from config.json with the family's facts.

#include <cstdint>

#include "recipe/model_config.hpp"

namespace diffuse {

struct MemoryConfig {
  ModelConfig encoder, decoder;
  std::int64_t features = 0;         // of a frame, where the encoder reads frames
  std::int64_t position_offset = 0;  // row of position 0 in tables for tokens
  float logits_scale = 1;
};

// The numbers of layers that the weights have; a config that says others is refused.
MemoryConfig read_memory_config(ConfigReader& config, const Facts& facts, std::int64_t encoder_layers,
                                std::int64_t decoder_layers);

// The halves of a model that has a config section for each.
ModelConfig read_text_encoder(ConfigReader& section, const Facts& facts, std::int64_t layers);
ModelConfig read_codebook_decoder(ConfigReader& section, const Facts& facts, std::int64_t layers);

}  // namespace diffuse
