// Says in JSON what the first visible card could do at its best: its figures come from the driver, its
// products a clock from NVIDIA's tables of dense tensor-core rates. Figures of a run are held against these.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  if (const auto error = cudaDeviceGetAttribute(&value, which, 0); error != cudaSuccess) {
    std::fprintf(stderr, "card: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
  return value;
}

// Multiplications and additions a clock and multiprocessor: of bf16 into f32 on tensor cores, and of f32.
struct Rate {
  int major;
  int minor;
  double bf16;
  double f32;
};
constexpr Rate kRates[] = {
    {8, 0, 2048, 128}, {8, 6, 512, 256}, {8, 9, 1024, 256}, {9, 0, 4096, 256}, {10, 0, 8192, 256}};

}  // namespace

int main() {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor);
  const int minor = attribute(cudaDevAttrComputeCapabilityMinor);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
  const double clock = attribute(cudaDevAttrClockRate) * 1e3;  // kHz
  const double processors = attribute(cudaDevAttrMultiProcessorCount);
  // Two transfers a clock; the bus is given in bits.
  const double bandwidth =
      2.0 * attribute(cudaDevAttrMemoryClockRate) * 1e3 * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  double bf16 = 0;
  double f32 = 0;
  for (const auto& rate : kRates) {
    if (rate.major != major || rate.minor != minor) continue;
    bf16 = rate.bf16 * processors * clock;
    f32 = rate.f32 * processors * clock;
  }
  std::printf(
      "{\"name\": \"%s\", \"sm\": \"sm_%d%d\", \"bytes_per_second\": %.0f, \"bf16_flops\": %.0f, "
      "\"f32_flops\": %.0f}\n",
      properties.name, major, minor, bandwidth, bf16, f32);
  return 0;
}
