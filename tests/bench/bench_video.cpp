// Seconds that the video decoder takes: bench_video FOLDER_OF_VAE LATENT_FRAMES HEIGHT WIDTH THREADS [TIMES]
// (of the latent). Compare with diffusers' in the same minute: tests/bench/video_reference.py.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "codec/video_decoder.hpp"
#include "codec/video_support.hpp"
#include "sampler/torch_randn.hpp"

int main(int argc, char** argv) {
  using namespace diffuse;  // NOLINT(google-build-using-namespace): a program of one function
  if (argc < 6) return 2;
  const auto number = [&](int index) { return std::atoll(argv[index]); };
  const test::TestVideoCodec model(argv[1]);
  const auto backend =
      make_cpu_backend({.threads = static_cast<int>(number(5)), .compute = Compute::f32, .simd = {}});
  codec::VideoDecoder decoder(model.codec, model.checkpoint, *backend);
  const codec::LatentSize size = {number(2), number(3), number(4)};
  const auto latents = torch_randn(
      1, static_cast<std::size_t>(model.codec.latent_channels * size.frames * size.height * size.width));
  for (int time = 0; time < (argc > 6 ? number(6) : 2); ++time) {
    const auto start = std::chrono::steady_clock::now();
    const auto used = std::clock();
    decoder.decode(latents, size);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::printf("%.3f s, %.3f s of processors, %.3f GB of activations, %.3f foretold\n", passed.count(),
                static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC,
                static_cast<double>(decoder.plane_bytes()) * 1e-9,
                static_cast<double>(codec::decoding_bytes(model.codec, size)) * 1e-9);
  }
  return 0;
}
