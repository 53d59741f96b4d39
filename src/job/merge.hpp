#pragma once
// Makes one result of several: the array jobs of a cluster, or runs of one job that were each stopped early.

#include <span>
#include <string>
#include <string_view>

#include "job/result.hpp"

namespace diffuse {

// Keys of a result's provenance that merging reads; a run writes them.
namespace provenance_key {
inline constexpr std::string_view kJob = "job_sha256";
inline constexpr std::string_view kConfig = "config_sha256";
inline constexpr std::string_view kTensors = "tensors_sha256";
inline constexpr std::string_view kCompute = "compute";
inline constexpr std::string_view kSimd = "simd";
inline constexpr std::string_view kBackend = "backend";
inline constexpr std::string_view kCodec = "codec";  // of media; what it computes on
inline constexpr std::string_view kTiles = "tiles";  // of pictures; what they were decoded in, if in tiles
inline constexpr std::string_view kPatches = "patches";  // of pictures; how they were cut, where they were
}  // namespace provenance_key

struct Part {
  std::string name;  // what its file is called, without folder and ending
  Result result;
};

// Parts of one job (the same job hash) are laid over each other by request id: a finished one takes the place
// of one that is not; where two are finished, their tokens and texts must be equal. Parts of different jobs
// follow each other in the order given; where an id would then stand twice, every id is written PART/ID.
// Timing and provenance become {"parts": [{"name", ...}]} beside the keys that all parts share. Throws bad
// data where parts come from different models, tensors, compute modes or SIMD targets, or contradict each
// other; usage where there are none.
Result merge(std::span<const Part> parts);

}  // namespace diffuse
