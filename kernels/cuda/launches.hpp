#pragma once
// The CUDA kernels as the backend calls them: each function queues one operation on a stream and returns at
// once. They see device pointers, sizes and strides, never tensors or models, and own nothing.
//
// What must hold: every pointer is memory of the stream's device that stays valid until the operation has
// run; tables (ids, slots, spans, pages) are device arrays too, checked by the caller. Strides count
// elements. Rows may start anywhere; where data, stride and columns are multiples of 16 bytes, loads are 16
// bytes wide. No rows: nothing is queued. An operation on x and y may work in place where its comment says
// so; otherwise they must not overlap. The return value is the launch's error: cudaErrorInvalidValue for
// sizes that the function cannot serve, or what the runtime said.
//
// Promise: a row of the result depends on that row, its own context and the weights alone. Sums run in trees
// and chains fixed by the length of what is summed, never by rows, blocks or threads, so the bits are the
// same for any grouping of rows. Formulas are those of the CPU kernels (kernels/kernels.hpp); the order of
// sums is this backend's own.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/pages.hpp"
#include "kernels/kernels.hpp"

namespace diffuse::kernels::cuda {

enum class Element : std::uint8_t { f32, f16, bf16 };

// Views of f32 rows on the device: [rows, cols], row i at data + i * stride.
struct RowsIn {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};
struct RowsOut {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  operator RowsIn() const { return {data, rows, cols, stride}; }  // NOLINT(google-explicit-constructor)
};

// ---- weights and matmul inputs

// to[i] = from[i] for `count` contiguous elements of any type into f32 or bf16. Widening is exact; to bf16
// rounds to nearest even.
[[nodiscard]] cudaError_t convert(cudaStream_t stream, const void* from, Element from_type, void* to,
                                  Element to_type, std::int64_t count);

// y = x, with zeros in the rows [x.rows, y.rows) and the columns [x.cols, y.cols): rows padded for a product,
// or a plain copy between strides. y.rows >= x.rows and y.cols >= x.cols; to copy out of a padded buffer, let
// x view the part that is wanted.
[[nodiscard]] cudaError_t copy_rows(cudaStream_t stream, RowsIn x, RowsOut y);

// The same into bf16 rows, rounded to nearest even: y [y_rows, y_cols], row i at y + i * y_stride.
[[nodiscard]] cudaError_t narrow_rows(cudaStream_t stream, RowsIn x, std::uint16_t* y, std::int64_t y_rows,
                                      std::int64_t y_cols, std::int64_t y_stride);

// ---- rows

// out[i] = scale * table[ids[i]] for a row-major table [vocab, out.cols] of f32, f16 or bf16.
[[nodiscard]] cudaError_t embed(cudaStream_t stream, const void* table, Element type,
                                const std::int32_t* ids,  // [out.rows]
                                float scale, RowsOut out);

// out[i] += table[positions[i]] from an f32 table [count, out.cols].
[[nodiscard]] cudaError_t add_positions(cudaStream_t stream, const float* table,
                                        const std::int32_t* positions,  // [out.rows]
                                        RowsOut out);

// As NormArgs of backend.hpp: each row is `groups` runs of cols / groups elements.
struct Norm {
  RowsIn x;                       // [rows, cols]
  RowsOut y;                      // [rows, cols]; may be x itself
  bool layer = false;             // subtract the mean; else RMS
  const float* weight = nullptr;  // [cols / groups] or null: ones
  const float* bias = nullptr;    // [cols / groups] or null
  float weight_offset = 0;
  float eps = 0;
  std::int64_t groups = 1;
};
[[nodiscard]] cudaError_t norm(cudaStream_t stream, const Norm& args);

// y = scale * activation(x + bias) [+ y]: what follows a product. x may be a view into a padded product, and
// y may be x where `accumulate` is off.
struct Finish {
  RowsIn x;                     // [rows, cols]
  RowsOut y;                    // [rows, cols]
  const float* bias = nullptr;  // [cols] or null
  Activation activation = Activation::none;
  float scale = 1;
  bool accumulate = false;
};
[[nodiscard]] cudaError_t finish(cudaStream_t stream, const Finish& args);

// y[:, j] = activation(x[:, j]) * x[:, y.cols + j] for x [rows, 2 * y.cols].
[[nodiscard]] cudaError_t gate(cudaStream_t stream, RowsIn x, RowsOut y, Activation activation);
// y = activation(x); y may be x.
[[nodiscard]] cudaError_t activate(cudaStream_t stream, RowsIn x, RowsOut y, Activation activation);
// y += scale * x, by one fused multiply-add.
[[nodiscard]] cudaError_t add_scaled(cudaStream_t stream, RowsIn x, RowsOut y, float scale);
// y[i, j] += gate[j] * x[i, j], by one fused multiply-add; gate [cols].
[[nodiscard]] cudaError_t add_gated(cudaStream_t stream, RowsIn x, const float* gate, RowsOut y);
// y = factor * y
[[nodiscard]] cudaError_t scale_rows(cudaStream_t stream, RowsOut y, float factor);
// y = cap * tanh(y / cap)
[[nodiscard]] cudaError_t softcap(cudaStream_t stream, RowsOut y, float cap);

// Rotates the first 2 * pairs dimensions of each head, in place.
struct Rope {
  RowsOut x;  // [rows, heads * head_dim]
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t pairs = 0;
  bool interleaved = false;    // pairs (2i, 2i + 1); else (i, i + pairs)
  const float* cos = nullptr;  // [rows, pairs] contiguous
  const float* sin = nullptr;  // [rows, pairs]
};
[[nodiscard]] cudaError_t rope(cudaStream_t stream, const Rope& args);

// out[t, c * width + k] = x[t * stride + k - padding, c], zero outside of x: the windows that a
// one-dimensional convolution sees, one a row.
struct Unfold {
  RowsIn x;     // [frames, channels]
  RowsOut out;  // [windows, channels * width]
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};
[[nodiscard]] cudaError_t unfold(cudaStream_t stream, const Unfold& args);

// ---- keys and values

// Where a row's keys and values go.
struct KvSlot {
  std::int32_t page = 0;  // of the pool
  std::int32_t slot = 0;  // in [0, kTile)
};

// Writes the rows k [rows, kv_heads * head_dim] and v [rows, kv_heads * value_dim] to their slots, rounded to
// bf16 where the pages are. No two rows share a slot.
struct KvWrite {
  PageShape shape;
  std::byte* pool = nullptr;  // [pages, shape.page_bytes()], aligned to 16 bytes
  RowsIn k;
  RowsIn v;
  const KvSlot* slots = nullptr;  // [rows]
};
[[nodiscard]] cudaError_t kv_write(cudaStream_t stream, const KvWrite& args);

// Each element of page to[i] becomes that of from[i] plus weight times how far it lies from what to[i] held,
// by one fused multiply-add; in bf16 pages rounded once. A weight of 0 copies, whatever to[i] held. No page
// of `from` is in `to`.
struct Extrapolate {
  std::byte* pool = nullptr;    // aligned to 16 bytes
  std::int64_t page_bytes = 0;  // a multiple of 16
  bool bf16 = false;
  const std::int32_t* from = nullptr;  // [pages]
  const std::int32_t* to = nullptr;    // [pages]
  std::int64_t pages = 0;
  float weight = 0;
};
[[nodiscard]] cudaError_t extrapolate(cudaStream_t stream, const Extrapolate& args);

// softmax(scale * q k^T [softcap] [+ slope * key position] [+ bias of the distance] over the keys in reach)
// v. Where causal, a row at position t reaches (t - window, t], and all up to t when window is 0; otherwise
// it reaches all keys [0, keys) of its span, and window must be 0. Every row reaches at least one key. q is
// rounded to bf16 where pages are bf16; weights and sums stay f32.
//
// Order of operations of a query vector, whatever block computes it: a score is one chain of fused
// multiply-adds over the head's dimensions; pages of kTile keys lie at absolute positions, and kPartPages of
// them make a part. A part has its own largest score and sum of weights (a tree over its keys), each of its
// pages a chain of multiply-adds over its keys in reach; pages are added in ascending order, then parts are
// merged in ascending order. So decode may cut a context over blocks, and prefill need not.
struct Attention {
  PageShape shape;
  const std::byte* pool = nullptr;  // aligned to 16 bytes
  RowsIn q;                         // [rows, heads * head_dim]
  RowsOut out;                      // [rows, heads * value_dim]
  std::int64_t heads = 0;           // a multiple of shape.kv_heads
  float scale = 1;
  bool causal = true;
  std::int64_t window = 0;
  float softcap = 0;                    // cap * tanh(score / cap); 0: none
  const float* alibi_slopes = nullptr;  // [heads] or null
  // [heads, 2 * bias_reach + 1] or null: adds bias[head, d + bias_reach] for d = key position - query
  // position, brought into [-bias_reach, bias_reach].
  const float* position_bias = nullptr;
  std::int64_t bias_reach = 0;
  AttentionCounts counts;                  // of the plan
  const AttentionSpan* tasks = nullptr;    // [counts.row_tasks + counts.tile_tasks], the plan's
  const AttentionMerge* merges = nullptr;  // [counts.merges], the plan's
  const std::int32_t* pages = nullptr;     // lists of pages that the spans' first_page index
  float* workspace = nullptr;              // [counts.workspace_floats], aligned to 16 bytes; null where 0
};
// Queues up to three kernels: tasks of few rows, tiles of many rows, and the merge of what was cut.
[[nodiscard]] cudaError_t attend(cudaStream_t stream, const Attention& args);

// out[row] = softmax(scale * q[row] k^T) of one head over the keys [0, out.cols), none masked.
struct AttentionWeights {
  PageShape shape;
  const std::byte* pool = nullptr;
  RowsIn q;  // [rows, heads * head_dim]
  RowsOut out;
  const std::int32_t* pages = nullptr;  // [keys / kTile, rounded up]
  std::int64_t heads = 0;
  std::int64_t head = 0;
  float scale = 1;
};
[[nodiscard]] cudaError_t attention_weights(cudaStream_t stream, const AttentionWeights& args);

// ---- experts

// Chooses top_k experts a row from the router's logits, best first with the lower expert at equality (a NaN
// is never better, so a row of NaN takes the lowest experts and its weights are NaN), and lists them in
// ascending expert number, in which the experts are added.
struct Route {
  RowsIn logits;           // [rows, experts]
  std::int64_t top_k = 1;  // in [1, experts], at most kMostChosen
  bool sigmoid = false;    // scores; else softmax over all experts
  bool renormalize = true;
  float scale = 1;
  std::int32_t* chosen = nullptr;  // out: [rows, top_k] ascending
  float* weights = nullptr;        // out: [rows, top_k]
};
inline constexpr std::int64_t kMostChosen = 64;
[[nodiscard]] cudaError_t route(cudaStream_t stream, const Route& args);

// Sorts the chosen (row, expert) pairs by expert, then row. Expert e gets the places
// [offsets[e], offsets[e] + counts[e]) of a list of rows; an expert's places start at multiples of row_step,
// so that a product padded to row_step rows never writes into the next expert's.
struct Group {
  const std::int32_t* chosen = nullptr;  // [rows, top_k] from route()
  std::int64_t rows = 0;
  std::int64_t top_k = 1;
  std::int64_t experts = 0;
  std::int64_t row_step = 1;
  std::int32_t* counts = nullptr;   // out: [experts]
  std::int32_t* offsets = nullptr;  // out: [experts]
  std::int32_t* members = nullptr;  // out: [group_places()] row at a place, or -1 where it is padding
  std::int32_t* places = nullptr;   // out: [rows, top_k] place of each chosen pair
};
// Places that a list needs at most: a bound that the host knows before the counts.
constexpr std::int64_t group_places(std::int64_t rows, std::int64_t top_k, std::int64_t experts,
                                    std::int64_t row_step) {
  const std::int64_t full = rows * top_k;
  const std::int64_t used = experts < full ? experts : full;  // experts that can have members
  return (full + used * (row_step - 1) + row_step - 1) / row_step * row_step;
}
[[nodiscard]] cudaError_t group_rows(cudaStream_t stream, const Group& args);

// y[i] = x[members[i]], zeros where members[i] is -1; y.rows entries of members are read. The second form
// rounds to bf16 and pads the columns [x.cols, y_cols) with zeros.
[[nodiscard]] cudaError_t gather_rows(cudaStream_t stream, RowsIn x, const std::int32_t* members, RowsOut y);
[[nodiscard]] cudaError_t gather_narrow_rows(cudaStream_t stream, RowsIn x, const std::int32_t* members,
                                             std::uint16_t* y, std::int64_t y_rows, std::int64_t y_cols,
                                             std::int64_t y_stride);

// out[i] = sum over its chosen experts, ascending, of weight * results[place], from 0 by fused multiply-adds.
// Overwrites out; every member row of all experts must have its result.
struct Combine {
  RowsIn results;                        // [places, hidden]
  const std::int32_t* places = nullptr;  // [out.rows, top_k]
  const float* weights = nullptr;        // [out.rows, top_k]
  std::int64_t top_k = 1;
  RowsOut out;  // [rows, hidden]
};
[[nodiscard]] cudaError_t combine(cudaStream_t stream, const Combine& args);

// ---- sampling

// ids[i] = index of the largest of logits row i, the lowest at equality; -1 where the row holds a NaN, an
// infinity that wins, or
// nothing. `workspace` holds argmax_workspace_bytes(rows, cols), aligned to 8 bytes.
std::size_t argmax_workspace_bytes(std::int64_t rows, std::int64_t cols);
[[nodiscard]] cudaError_t argmax(cudaStream_t stream, RowsIn logits, std::byte* workspace,
                                 std::int32_t* ids);  // [rows]

}  // namespace diffuse::kernels::cuda
