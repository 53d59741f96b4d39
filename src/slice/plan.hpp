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

// What one rank holds: layers [first_layer, end_layer), an end or both, a copy of the encoder. A rank without
// layers holds nothing and idles, or it holds the encoder.
struct RankSlice {
  std::int32_t rank = 0;
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool front = false;
  bool back = false;
  bool encoder = false;
  std::vector<std::string> tensors;  // that the rank reads, each once, in order of use
  std::uint64_t weight_bytes = 0;    // of those tensors as stored: exactly what the run will read
  double cost =
      0;  // of a decoded token: bytes of weights that it touches, a block's counted higher, and of memory
  double encoder_cost = 0;  // in it: the share of what is encoded that falls to it, see plan.cpp

  bool idle() const { return first_layer == end_layer; }  // no stage of the pipeline
  std::int64_t layers() const { return end_layer - first_layer; }
};

struct Plan {
  std::vector<RankSlice> ranks;        // one a rank, in order
  std::int32_t stages = 0;             // ranks that hold layers: 0 .. stages - 1
  std::vector<std::int32_t> encoders;  // ranks that hold the encoder, each of them whole; ascending
  // Tensors of which several slices need all, though they belong to one layer or to none: each loads its own
  // copy.
  std::vector<std::string> shared;

  std::string slices() const;         // "0-7,8-23"
  std::string encoders_text() const;  // "0, 1, 2"
  double largest_cost() const;        // of a rank: what the pace depends on
};

// How many ranks encode. The encoder is never cut: what is shared are requests, each of them encoded whole.
enum class EncoderCopies : std::uint8_t {
  automatic,  // as copies_pay says
  one,        // the first rank without layers; where all have some, rank 0
  all,        // every rank
};

// Whether a copy of the encoder on every rank is worth its memory: with one alone, the costliest rank would
// cost more than a tenth more than with a copy on all of them.
bool copies_pay(const Plan& one, const Plan& all);

// Layers of each stage, as "0-7,8-23" (both ends included). Throws usage where the text is not of that form
// or the ranges do not cover [0, depth) in order without a gap.
std::vector<std::pair<std::int64_t, std::int64_t>> parse_slices(const std::string& text, std::int64_t depth);

// `slices` empty: balanced by cost. Throws usage where ranks < 1 or there are more slices than ranks.
Plan make_plan(const Recipe& recipe, const TensorHeaders& headers, std::int32_t ranks,
               const std::string& slices = {}, EncoderCopies copies = EncoderCopies::automatic);

// Elements of keys and values that one position takes in one layer; 0 for a block without attention.
std::int64_t kv_elements(const Block& block);

Json to_json(const Plan& plan);

}  // namespace diffuse
