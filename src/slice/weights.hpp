#pragma once
// The weights of one slice on a backend: a recipe's references resolved, cut, turned, fused and packed once
// at load, so that running a step is plain. Query, key and value are one matrix, as are gate and up.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "recipe/recipe.hpp"
#include "slice/plan.hpp"

namespace diffuse {

struct LoadedNorm {
  NormSpec spec;
  Buffer weight, bias;  // f32 [width]; empty where the spec has none

  const float* weight_data() const { return weight.bytes() > 0 ? weight.floats() : nullptr; }
  const float* bias_data() const { return bias.bytes() > 0 ? bias.floats() : nullptr; }
};

struct LoadedLinear {
  std::shared_ptr<const PackedMatrix> matrix;
  Buffer bias;  // f32 [rows]; empty: none

  const float* bias_data() const { return bias.bytes() > 0 ? bias.floats() : nullptr; }
};

struct NormStep {
  const Norm* step;
  LoadedNorm norm;
};
struct AttentionStep {
  const Attention* step;
  LoadedLinear qkv, output;
  std::optional<LoadedNorm> query_norm, key_norm;
  Buffer position_bias;  // f32 [heads, 2 * max_distance + 1], by distance; empty: none
  KvPool kv;             // set by the executor
};
// Keys and values of the memory are one product, made when it arrives.
struct CrossAttentionStep {
  const CrossAttention* step;
  LoadedLinear query, key_value, output;
  std::optional<LoadedNorm> query_norm, key_norm;
  KvPool kv;  // set by the executor
};
struct MlpStep {
  const Mlp* step;
  LoadedLinear up, down;  // up is gate over up where the MLP is gated
};
struct ExpertsStep {
  const Experts* step;
  LoadedLinear router;
  std::vector<ExpertWeights> experts;
};
struct AddStep {
  const Add* step;
};
struct ModulateStep {
  const Modulate* step;
  Buffer table;  // f32 [rows, hidden]
};
using LoadedStep =
    std::variant<NormStep, AttentionStep, CrossAttentionStep, MlpStep, ExpertsStep, AddStep, ModulateStep>;

struct LoadedFront {
  std::shared_ptr<const PackedMatrix> embedding;
  std::vector<std::shared_ptr<const PackedMatrix>> further;  // of the codebooks behind the first
  Buffer positions;  // f32 [count, hidden], stored or computed; empty: none
  std::optional<LoadedNorm> norm;
};

struct LoadedFrames {
  std::vector<LoadedLinear> convolutions;  // [outputs, inputs * width]
  Buffer positions;                        // f32 [rows, hidden]
};

struct LoadedEncoder {
  std::variant<LoadedFront, LoadedFrames> front;
  std::vector<std::vector<LoadedStep>> blocks;
  std::optional<LoadedNorm> norm;
  std::vector<LoadedLinear> projections;
};

// Of a stack that refines: what every slice holds, and the ends where the slice has them.
struct LoadedRefinement {
  struct Back {
    LoadedNorm norm;
    Buffer table;  // f32 [2, hidden]
    LoadedLinear head;
  };
  LoadedLinear time_first, time_second, time_condition;
  std::optional<LoadedLinear> front;
  std::optional<Back> back;
};

// Points into the recipe that it was loaded from, which must outlive it.
struct SliceWeights {
  using Front = LoadedFront;
  struct Back {
    std::optional<LoadedNorm> norm;
    LoadedLinear head;  // those of all codebooks as one
  };
  std::optional<LoadedEncoder> encoder;
  std::optional<Front> front;
  std::vector<std::vector<LoadedStep>> blocks;
  std::optional<Back> back;
  std::optional<LoadedRefinement> refinement;   // in the place of front and back
  std::map<std::string, std::uint64_t> hashes;  // of each tensor that was read
  std::uint64_t bytes_read = 0;                 // of the checkpoint; equals the plan's weight_bytes
};

// Reads exactly the tensors that `slice` names, each once. `progress` is told the bytes read so far.
SliceWeights load_slice(const Recipe& recipe, const RankSlice& slice, const Checkpoint& checkpoint,
                        Backend& backend, const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace diffuse
