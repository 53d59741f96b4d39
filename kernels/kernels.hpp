#pragma once
// The CPU kernels: each operation once, written over vectors of any width and compiled for each SIMD target.
// They see pointers, sizes and strides (in elements), never tensors or models.
//
// What must hold: an output element depends on its own row, the weights and the sizes along the summed
// dimension alone, through one order of operations a target; the number of rows in a call, where a row lies
// and how the caller cuts the work never change a bit. So each product has one chain of fused multiply-adds
// in ascending k, and tails run the same formula with lanes masked.

#include <cstddef>
#include <cstdint>

namespace diffuse::kernels {

enum class Activation : std::uint8_t { none, silu, gelu_erf, gelu_tanh, quick_gelu, relu, relu_squared };

// Weights lie in panels of this many outputs, so that lanes run over outputs.
inline constexpr std::int64_t kPanel = 64;
// The summed dimension of bf16 panels is padded with zeros to a multiple of this (a row of an AMX tile).
inline constexpr std::int64_t kDepthStep = 32;
// Positions of a page of keys and values: one attention tile.
inline constexpr std::int64_t kTile = 64;
// Rows of values are padded to a multiple of this.
inline constexpr std::int64_t kValueStep = 16;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// acc[r, c] (+)= sum over k < depth of x[r, k] * w[k, c] for one panel, or for a part of its inputs: a sum
// can be walked in pieces of a multiple of kDepthStep, with the same bits.
struct PanelProduct {
  const void* x = nullptr;  // [rows, depth] f32, or bf16 for the native product
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  std::int64_t depth = 0;   // a multiple of kDepthStep for the native product: x is padded with zeros
  const void* w = nullptr;  // f32 [depth, kPanel], or bf16 [depth / 2, kPanel, 2]
  float* acc = nullptr;     // [rows, kPanel]
  bool add = false;         // acc holds the sum so far
  // Weights that come next, to be fetched into the cache meanwhile, or null.
  const std::byte* next = nullptr;
  std::int64_t next_bytes = 0;
};

// A panel of PanelFormat::coded (kernels/layout.hpp), and its pairs of inputs that are kept as they are.
struct CodedPanel {
  const std::byte* panel = nullptr;
  const std::uint32_t* escaped = nullptr;  // pairs, ascending
  std::int64_t escaped_count = 0;
  const std::uint16_t* escaped_weights = nullptr;  // bf16 [escaped_count, kPanel, 2]
};

// y = scale * activation(acc + bias) [+ y].
struct PanelStore {
  const float* acc = nullptr;  // [rows, kPanel]
  std::int64_t rows = 0;
  std::int64_t cols = 0;        // of the panel that exist, <= kPanel
  const float* bias = nullptr;  // [cols] or null
  Activation activation = Activation::none;
  float scale = 1;
  bool accumulate = false;
  float* y = nullptr;  // [rows, cols]
  std::int64_t y_stride = 0;
};

struct NormRow {
  const float* x = nullptr;  // [groups * size]
  float* y = nullptr;        // may be x
  std::int64_t groups = 1;
  std::int64_t size = 0;
  const float* weight = nullptr;  // [size] or null
  const float* bias = nullptr;    // [size] or null
  float weight_offset = 0;
  float eps = 0;
  bool layer = false;  // subtract the mean
};

struct RopeRow {
  float* x = nullptr;  // [heads * head_dim]
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t pairs = 0;
  bool interleaved = false;
  const float* cos = nullptr;  // [pairs]
  const float* sin = nullptr;  // [pairs]
};

// What a run of key tiles has gathered for each query vector; merged in ascending order of positions.
struct AttentionState {
  float* largest = nullptr;  // [queries] of the scores
  float* weights = nullptr;  // [queries] sum of exp(score - largest)
  float* values = nullptr;   // [queries, value_stride] sum of exp(score - largest) * value
};

// One tile of keys and values against a block of query vectors of one key-value head.
struct AttentionTile {
  const float* q = nullptr;  // [queries, head_dim] contiguous; rounded to bf16 before where pages are bf16
  std::int64_t queries = 0;
  const std::int64_t* position = nullptr;  // [queries] of each query vector in its sequence
  const float* slope = nullptr;            // [queries] added times the key position, or null
  const float* bias = nullptr;  // [queries, kTile] added to the scores, aligned to 64 bytes, or null
  std::int64_t head_dim = 0;
  std::int64_t value_stride = 0;  // round_up(value_dim, kValueStep)
  const void* keys = nullptr;     // f32 [head_dim, kTile], or bf16 [(head_dim + 1) / 2, kTile, 2]
  const void* values = nullptr;   // f32 [kTile, value_stride], or bf16 [kTile / 2, value_stride, 2]
  std::int64_t first_position = 0;
  float scale = 1;
  float softcap = 0;
  std::int64_t window = 0;
  float* scores = nullptr;  // scratch [queries, kTile]
  AttentionState state;
};

struct KernelTable {
  const char* name = "";
  // True where matmul_native is there: bf16 activations. Without it a product of bf16 by bf16 is matmul_bf16
  // over activations that were rounded and widened again.
  bool native_bf16 = false;

  // Rows that one pass over the weights serves.
  std::int64_t pass_rows = 0;
  std::int64_t native_pass_rows = 0;

  void (*matmul_f32)(const PanelProduct&) = nullptr;     // f32 x, f32 w
  void (*matmul_bf16)(const PanelProduct&) = nullptr;    // f32 x, bf16 w
  void (*matmul_native)(const PanelProduct&) = nullptr;  // bf16 x, bf16 w
  void (*store_panel)(const PanelStore&) = nullptr;

  // f16 as f32, the same numbers; count is a multiple of kPanel.
  void (*expand_f16)(const std::uint16_t* x, float* y, std::int64_t count) = nullptr;

  // What a target has for coded panels, or nothing. The product of up to coded_rows rows takes the weights of
  // such a panel from input `begin` on in place of args.w, with the bits of matmul_native; of more rows it is
  // the slower way, and the inputs [begin, end), multiples of kDepthStep, are expanded into bf16
  // [(end - begin) / 2, kPanel, 2], aligned to 64 bytes.
  void (*matmul_coded)(const PanelProduct&, const CodedPanel&, std::int64_t begin) = nullptr;
  void (*expand_coded)(const CodedPanel&, std::int64_t begin, std::int64_t end, std::uint16_t* to) = nullptr;
  std::int64_t coded_rows = 0;

  // y[i] = x[i] rounded to bf16, as f32 or as bf16 with zeros in [count, padded).
  void (*round_bf16)(const float* x, float* y, std::int64_t count) = nullptr;
  void (*narrow_bf16)(const float* x, std::uint16_t* y, std::int64_t count, std::int64_t padded) = nullptr;

  void (*norm)(const NormRow&) = nullptr;
  void (*rope)(const RopeRow&) = nullptr;
  void (*activate)(Activation, const float* x, float* y, std::int64_t count) = nullptr;
  // y = activation(gate) * up
  void (*gate)(Activation, const float* gate, const float* up, float* y, std::int64_t count) = nullptr;
  void (*add_scaled)(const float* x, float* y, float scale, std::int64_t count) = nullptr;  // y += scale * x
  // y[i] += gate[i] * x[i]
  void (*add_gated)(const float* x, const float* gate, float* y, std::int64_t count) = nullptr;
  // y[i] = x[i] + weight * (x[i] - y[i]); of bf16, each computed in f32 and rounded once.
  void (*extrapolate_f32)(const float* x, float* y, float weight, std::int64_t count) = nullptr;
  void (*extrapolate_bf16)(const std::uint16_t* x, std::uint16_t* y, float weight,
                           std::int64_t count) = nullptr;
  void (*scale)(float* y, float factor, std::int64_t count) = nullptr;
  void (*softcap)(float* y, float cap, std::int64_t count) = nullptr;
  void (*softmax)(float* x, std::int64_t count) = nullptr;
  void (*sigmoid)(float* x, std::int64_t count) = nullptr;
  // The lowest index of the largest element; -1 where there is a NaN or nothing.
  std::int64_t (*argmax)(const float* x, std::int64_t count) = nullptr;

  void (*attend_f32)(const AttentionTile&) = nullptr;   // pages of f32
  void (*attend_bf16)(const AttentionTile&) = nullptr;  // pages of bf16
  // into = into merged with the later `from`.
  void (*merge)(const AttentionState& into, const AttentionState& from, std::int64_t queries,
                std::int64_t value_stride) = nullptr;
  // out[0..value_dim) = values / weights of one query vector.
  void (*finish)(const AttentionState&, std::int64_t query, std::int64_t value_stride, float* out,
                 std::int64_t value_dim) = nullptr;
};

}  // namespace diffuse::kernels
