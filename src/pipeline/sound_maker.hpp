#pragma once
// The codec of a model whose answers are sound: on the client, in f32 on its CPU, whatever the ranks compute
// on.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "codec/sound_decoder.hpp"
#include "core/media.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

class SoundMaker {
 public:
  // Loads the codec's weights. `codec` and `checkpoint` must outlive it. `simd` as in CpuOptions: samples are
  // the same bits within one target.
  SoundMaker(const SoundCodec& codec, const Checkpoint& checkpoint, int threads, const std::string& simd);

  // Of codes [codebooks][frames]. Throws bad data where the codec makes samples of them that are not finite.
  // One call at a time, from any thread.
  MediaArray make(const std::vector<std::vector<std::int32_t>>& codes);

  // Of each tensor that was read.
  const std::map<std::string, std::uint64_t>& hashes() const { return decoder_.weights().hashes; }
  std::string target() const { return backend_->target(); }

 private:
  std::unique_ptr<Backend> backend_;
  codec::SoundDecoder decoder_;
};

}  // namespace diffuse
