#pragma once
// What reading one HDF5 file may take. Generous: they are there for files that were made to hurt.

#include <chrono>
#include <cstdint>

namespace diffuse {

// Zero stands for the default, which grows with the file.
struct ReadLimits {
  std::uint64_t data_bytes = 0;   // all arrays together, unpacked. Default: 256 MiB + 16 times the file
  std::uint64_t cpu_seconds = 0;  // of the child. Default: 60 and one for each 16 MiB of the file
  std::chrono::milliseconds silence{
      0};  // without a byte from the child. Default: 300 s and 1 s for each 4 MiB
};

// `limits` with its zeros replaced for a file of `file_bytes`.
ReadLimits effective_limits(const ReadLimits& limits, std::uint64_t file_bytes);

// What the child may hold in memory (its arrays, the values made of them and the answer), beyond what the
// program has mapped when it starts.
std::uint64_t memory_limit(const ReadLimits& effective);

}  // namespace diffuse
