#include "pipeline/sound_maker.hpp"

namespace diffuse {

SoundMaker::SoundMaker(const SoundCodec& codec, const Checkpoint& checkpoint, int threads,
                       const std::string& simd)
    : backend_(make_cpu_backend({.threads = threads, .compute = Compute::f32, .simd = simd})),
      decoder_(codec, checkpoint, *backend_) {}

MediaArray SoundMaker::make(const std::vector<std::vector<std::int32_t>>& codes) {
  const auto wave = decoder_.decode(codes);
  return sound_of(wave.samples, wave.channels, wave.rate);
}

}  // namespace diffuse
