#pragma once
// The split as a value: which layers each rank holds, which ends, and what that costs in bytes. Pure: made
// from the recipe and the weights' headers alone, so `plan` shows on a laptop what a job will do on a
// cluster.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/tensor_header.hpp"
#include "core/json.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

// What one rank holds: layers [first_layer, end_layer), and an end or both. A rank without layers holds
// nothing and idles, or it holds the encoder.
struct RankSlice {
  std::int32_t rank = 0;
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool front = false;
  bool back = false;
  bool encoder = false;
  std::vector<std::string> tensors;  // that the rank reads, each once, in order of use
  std::uint64_t weight_bytes = 0;    // of those tensors as stored: exactly what the run will read
  double cost = 0;  // of one decoded token: bytes of weights that it touches, a block's counted higher
  double encoder_cost = 0;  // in it: the encoder's share, see kEncoderShare in plan.cpp

  bool idle() const { return first_layer == end_layer; }  // no stage of the pipeline
  std::int64_t layers() const { return end_layer - first_layer; }
};

struct Plan {
  std::vector<RankSlice> ranks;  // one a rank, in order
  std::int32_t stages = 0;       // ranks that hold layers: 0 .. stages - 1
  std::int32_t encoder = -1;     // the rank that encodes: 0, or `stages` where there is one; -1: no encoder
  // Tensors of which several slices need all, though they belong to one layer or to none: each loads its own
  // copy.
  std::vector<std::string> shared;

  std::string slices() const;  // "0-7,8-23"
};

// Layers of each stage, as "0-7,8-23" (both ends included). Throws usage where the text is not of that form
// or the ranges do not cover [0, depth) in order without a gap.
std::vector<std::pair<std::int64_t, std::int64_t>> parse_slices(const std::string& text, std::int64_t depth);

// `slices` empty: balanced by cost. Throws usage where ranks < 1 or there are more slices than ranks.
Plan make_plan(const Recipe& recipe, const TensorHeaders& headers, std::int32_t ranks,
               const std::string& slices = {});

// Elements of keys and values that one position takes in one layer; 0 for a block without attention.
std::int64_t kv_elements(const Block& block);

Json to_json(const Plan& plan);

}  // namespace diffuse
