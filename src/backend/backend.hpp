#pragma once
// The seam between the pipeline and the processor that computes: memory, packed weights and every operation
// that a recipe's steps need. Implementations: cpu/ and cuda/.
//
// Promise of every operation here (the design's Exactness): a row of the result depends on that row, its own
// context and the weights alone, through one order of operations fixed by the sizes of the weights, the types
// and the kernel. The number of rows in a call, their grouping, the number of threads and chunk borders never
// change a bit.
//
// Activations are f32 rows in the backend's memory. In Compute::bf16, matmul inputs and the key-value cache
// are rounded to bf16 inside the operation; accumulation, the residual and what is returned stay f32 in both
// modes.
//
// Operations are queued in order on one stream and may return before they ran; download() and synchronize()
// wait. Pointers inside the arguments (host spans too) must stay valid until then. Not thread-safe: one
// caller at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace diffuse {

enum class Compute : std::uint8_t { f32, bf16 };

// Owns memory on the backend's device; freed with the last copy.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<std::byte> data, std::size_t bytes) : data_(std::move(data)), bytes_(bytes) {}
  std::byte* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

// Views of f32 rows in the backend's memory: [rows, cols], row i at data + i * stride.
struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};
struct ConstRows {
  ConstRows() = default;
  ConstRows(const float* data_in, std::int64_t rows_in, std::int64_t cols_in, std::int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
  ConstRows(const Rows& from)  // NOLINT(google-explicit-constructor)
      : data(from.data), rows(from.rows), cols(from.cols), stride(from.stride) {}
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};

// A matrix on the host as a checkpoint stores it, row-major and contiguous: [rows = outputs, cols = inputs].
// dtype is one of f32, f16, bf16.
struct HostMatrix {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// What a packed matrix is for. Compute::bf16 rounds the inputs of a matmul, and so weights of other types, to
// bf16; a router's weights stay as stored, for it is always computed in f32.
enum class WeightUse : std::uint8_t { matmul, router };

// A weight matrix in the backend's own layout; made once at load by Backend::pack.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual std::int64_t rows() const = 0;  // outputs
  virtual std::int64_t cols() const = 0;  // inputs
  virtual std::size_t bytes() const = 0;  // of device memory
};

enum class Activation : std::uint8_t { none, silu, gelu_erf, gelu_tanh, quick_gelu, relu, relu_squared };

enum class NormKind : std::uint8_t { rms, layer };

// y = norm(x) * (weight + weight_offset) + bias over `cols` of each row; with groups > 1 each row is `groups`
// runs of cols / groups elements that are normed one by one with the same weight (query and key norms a
// head). RMS: x / sqrt(mean(x^2) + eps). Layer: (x - mean) / sqrt(var + eps). Sums in a fixed order of f64 or
// blocked f32.
struct NormArgs {
  ConstRows x;  // [rows, cols]
  Rows y;       // [rows, cols]; may be x itself
  NormKind kind = NormKind::rms;
  const float* weight = nullptr;  // [cols / groups] f32 on the device, or null: all ones
  const float* bias = nullptr;    // [cols / groups] or null
  float weight_offset = 0;
  float eps = 0;
  std::int64_t groups = 1;
};

// What happens to a product before it is stored: y = scale * activation(x W^T + bias) [+ y when accumulate].
struct Epilogue {
  const float* bias = nullptr;  // [out] f32 on the device, or null
  Activation activation = Activation::none;
  float scale = 1;
  bool accumulate = false;  // add to what y holds: the residual
};

enum class RopeStyle : std::uint8_t { half, interleaved };  // pairs (i, i + d/2), or (2i, 2i + 1)

// Rotates the first 2 * pairs dimensions of each head of each row, in place.
struct RopeArgs {
  Rows x;  // [rows, heads * head_dim]
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t pairs = 0;
  RopeStyle style = RopeStyle::half;
  const float* cos = nullptr;  // [rows, pairs] on the device
  const float* sin = nullptr;  // [rows, pairs]
};

// Keys and values of one layer, in pages of kPageTokens positions. A page holds the positions
// [p * kPageTokens, (p + 1) * kPageTokens) of one sequence, so key tiles are anchored at absolute positions.
inline constexpr std::int64_t kPageTokens = 64;
struct KvSpec {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   // of keys
  std::int64_t value_dim = 0;  // of values
};
struct KvPool {
  KvSpec spec;
  Buffer memory;  // [pages, kv_page_bytes(spec)]
};

// Consecutive rows of a batch that belong to one sequence.
struct Segment {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_position = 0;      // of first_row, in the sequence
  std::span<const std::int32_t> pages;  // page of position q: pages[q / kPageTokens]; host memory
  std::int64_t keys = 0;                // where attention is not causal: positions [0, keys) are reached
};

// softmax(scale * q k^T [softcap] [+ bias] over the keys in reach) v. Where causal, a row at position t
// reaches the positions (t - window, t], all up to t when window is 0; otherwise it reaches all keys of its
// segment, at least one, and window must be 0. The keys and values of the batch's own rows were written
// before.
struct AttentionArgs {
  ConstRows q;  // [rows, heads * head_dim]
  Rows out;     // [rows, heads * value_dim]
  const KvPool* kv = nullptr;
  std::span<const Segment> segments;
  std::int64_t heads = 0;
  float scale = 1;
  std::int64_t window = 0;
  float softcap = 0;                    // cap * tanh(score / cap); 0: none
  const float* alibi_slopes = nullptr;  // [heads] on the device: adds slope * key position; null: none
  bool causal = true;
  // [heads, 2 * bias_reach + 1] on the device: adds bias[head, d + bias_reach], d = key position - query
  // position, brought into [-bias_reach, bias_reach]; null: none.
  const float* position_bias = nullptr;
  std::int64_t bias_reach = 0;
  // The keys are those of another sequence. A hint: what a backend prepares for a step's own keys is kept
  // beside what it prepares for these.
  bool of_memory = false;
};

// What one head of attend() weighs its keys with, where it is not causal: out[row] = softmax(scale * q[row]
// k^T) over the keys [0, out.cols).
struct AttentionWeightsArgs {
  ConstRows q;  // [rows, heads * head_dim]
  Rows out;     // [rows, keys]
  const KvPool* kv = nullptr;
  std::span<const std::int32_t> pages;  // as a segment's
  std::int64_t heads = 0;
  std::int64_t head = 0;
  float scale = 1;
};

// The windows that a one-dimensional convolution sees, one a row, so that its product with the weights is a
// matmul: out[t, c * width + k] = x[t * stride + k - padding, c], zero outside of x.
struct UnfoldArgs {
  ConstRows x;  // [frames, channels]
  Rows out;     // [windows, channels * width]
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

// Mixture of experts: out[row] (+)= sum over the chosen experts, in ascending expert number, of weight *
// expert(x[row]). An expert is down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.
// `out` must not be `x`: it is written while later experts still read.
struct ExpertWeights {
  std::shared_ptr<const PackedMatrix>
      gate_up;  // [2 * inner, hidden], gate rows first; or [inner, hidden] ungated
  std::shared_ptr<const PackedMatrix> down;  // [hidden, inner]
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
};
enum class RouterScore : std::uint8_t { softmax, sigmoid };
struct ExpertsArgs {
  ConstRows x;                           // [rows, hidden]
  Rows out;                              // [rows, hidden]; overwritten
  const PackedMatrix* router = nullptr;  // [experts, hidden]; always computed in f32
  std::span<const ExpertWeights> experts;
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::softmax;  // over all experts, before choosing
  bool renormalize = true;                   // chosen weights are divided by their sum
  float scale = 1;                           // of the weights, after that
  Activation activation = Activation::silu;
  bool gated = true;
};

// The largest steps of a run, told before the first, so that nothing has to grow in the middle of it. A hint:
// what is larger still is computed all the same.
struct ExpectedSteps {
  std::int64_t rows = 0;                  // of one step
  std::int64_t samples = 0;               // sequences of a step, and rows of logits at once
  std::int64_t positions = 0;             // of the longest context
  std::int64_t pages = 0;                 // of keys and values, of all sequences of a step
  std::vector<AttentionArgs> attentions;  // of the blocks, without rows and segments
  std::vector<ExpertsArgs> experts;       // of the blocks, without rows
};

// What differs from time to time in work that is repeated: the rows' places. Everything else that its
// operations are given (pointers, sizes, weights) is the same whenever `rows` is the same view.
struct RepeatedStep {
  Rows rows;                          // that the work begins with and ends with
  std::span<const Segment> segments;  // of every kv_write, and of attention over the rows' own sequences
  std::span<const Segment> memory;    // of attention over a memory
};

// Work that is repeated, such as a decode step through a slice's blocks. A backend may note down what it
// queues and queue all of it at once from then on; here it is run each time. Freed before its backend and
// before the memory that the work uses.
class Repetition {
 public:
  virtual ~Repetition() = default;
  // Queues what `work` queues; the same bits, however it does. `work` queues operations and does nothing
  // else: it may be run, or not, or begun and then run anew. It takes and frees no memory, waits for nothing,
  // and its segments are those of `step`; what cannot keep to this is run without a Repetition.
  virtual void run(const RepeatedStep& /*step*/, const std::function<void()>& work) { work(); }
};

// What the ranks of a run must know of the card behind a backend; empty on a CPU.
struct DeviceFacts {
  std::string name;              // "NVIDIA H200"
  std::string id;                // its UUID: equal on two ranks of a host where they share the card
  std::uint64_t free_bytes = 0;  // memory not taken by anybody now
  void* stream = nullptr;        // cudaStream_t that the operations are queued on, for a transport's order
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;    // "cpu", "cuda"
  virtual std::string target() const = 0;  // SIMD target or card, for reports: "avx512", "sm_90"
  virtual Compute compute() const = 0;
  virtual DeviceFacts device() const { return {}; }
  // To be called when the backend and all that it gave out are gone: throws (io, internal) what failed while
  // they were freed, for destructors cannot.
  virtual std::function<void()> released() const {
    return [] {};
  }

  virtual Buffer allocate(std::size_t bytes) = 0;  // zeroed, aligned to 64 bytes or more
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;  // waits
  virtual void copy(ConstRows from, Rows to) = 0;
  virtual void synchronize() = 0;
  // True where the device's memory can be handed to MPI and read by the host as it is.
  virtual bool host_addressable() const = 0;

  // Lays out `parts`, stacked along their rows, as one matrix. All parts have the same cols; types may
  // differ. What is all bf16, or all f16, keeps at most 2 bytes an element where the backend has an exact
  // path for it, and is widened where not.
  virtual std::shared_ptr<const PackedMatrix> pack(std::span<const HostMatrix> parts, WeightUse use) = 0;
  std::shared_ptr<const PackedMatrix> pack(std::span<const HostMatrix> parts) {
    return pack(parts, WeightUse::matmul);
  }

  // out[i] = scale * table[ids[i]]; ids are checked by the caller. The table is packed as a matrix [vocab,
  // hidden], so that a tied head and the embedding are one copy.
  virtual void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale, Rows out) = 0;
  // out[i] += table row positions[i], from an f32 table [count, hidden] on the device (learned positions).
  virtual void add_positions(const float* table, std::span<const std::int32_t> rows, Rows out) = 0;

  virtual void norm(const NormArgs& args) = 0;
  virtual void matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) = 0;
  // y[:, j] = activation(x[:, j]) * x[:, inner + j] for x of [rows, 2 * inner]: a gated MLP's middle.
  virtual void gate(ConstRows x, Rows y, Activation activation) = 0;
  // y = activation(x), elementwise; y may be x.
  virtual void activate(ConstRows x, Rows y, Activation activation) = 0;
  virtual void add(ConstRows x, Rows y, float scale) = 0;  // y += scale * x
  // y[i, j] += gate[j] * x[i, j], fused; gate [cols] f32 on the device.
  virtual void add_gated(ConstRows x, const float* gate, Rows y) = 0;
  virtual void scale(Rows y, float factor) = 0;
  virtual void softcap(Rows y, float cap) = 0;  // y = cap * tanh(y / cap)
  virtual void rope(const RopeArgs& args) = 0;
  virtual void unfold(const UnfoldArgs& args) = 0;

  virtual void expect(const ExpectedSteps& /*steps*/) {}
  // `attentions` of the work, as in ExpectedSteps; their pools must outlive the result.
  virtual std::unique_ptr<Repetition> make_repetition(std::span<const AttentionArgs> /*attentions*/) {
    return std::make_unique<Repetition>();
  }

  virtual std::size_t kv_page_bytes(const KvSpec& spec) const = 0;
  virtual void kv_write(const KvPool& pool, ConstRows k, ConstRows v, std::span<const Segment> segments) = 0;
  // Pages of keys and values carried on: each element of page to[i] becomes that of from[i] plus weight times
  // its distance from what to[i] held, which a weight of 0 does not read. `to` and `from` share no page.
  virtual void extrapolate(const KvPool& pool, std::span<const std::int32_t> from,
                           std::span<const std::int32_t> to, float weight) = 0;
  virtual void attend(const AttentionArgs& args) = 0;
  virtual void attention_weights(const AttentionWeightsArgs& args) = 0;
  virtual void experts(const ExpertsArgs& args) = 0;

  // ids[i] = index of the largest of logits row i, the lowest at equality; -1 where the row holds a NaN or
  // its largest is an infinity: such a row chooses nothing.
  virtual void argmax(ConstRows logits, std::span<std::int32_t> ids) = 0;  // waits
};

struct CpuOptions {
  int threads = 1;
  Compute compute = Compute::f32;
  std::string simd;  // name of a SIMD target; empty: the best of this machine
};
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);
// The SIMD targets of this machine, best first; the same list order on every machine, so ranks can agree on
// the least.
std::vector<std::string> cpu_simd_targets();

struct CudaOptions {
  int device = 0;
  Compute compute = Compute::bf16;
  bool graphs = true;                                 // work that is repeated is recorded as CUDA graphs
  std::function<void(const std::string&)> warn = {};  // is told, once, where that cannot be done
};
// Refuses where why_no_cuda() has a reason, or this card is not there. Its operations read host memory that
// they are given before they return. Calls come from any one thread at a time; each makes the card the
// current one of that thread.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);
// Cards that make_cuda_backend can use here; 0 in a build without it, or where no driver answers.
int cuda_device_count();
// One sentence on why there are none and what to do; empty where there are some.
std::string why_no_cuda();

}  // namespace diffuse
