#pragma once
// The rank of an encoder that has no layers: encodes batches as rank 0 sends them, and sends what comes of
// them to every stage.

#include "pipeline/stage.hpp"
#include "slice/encoder.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// Until `finish`. `encoder` is the recipe's that `runner` runs.
StageReport encode_batches(EncoderRunner& runner, const Encoder& encoder, Transport& transport,
                           std::int32_t stages);

}  // namespace diffuse
