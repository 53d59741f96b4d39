#pragma once
// The backend of a CUDA card: cuBLASLt for products, our kernels (kernels/cuda) for the rest, everything
// queued in order on one stream. Host memory that an operation is given is read before the call returns.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/matrix.hpp"
#include "backend/cuda/products.hpp"
#include "backend/cuda/repetition.hpp"
#include "backend/cuda/staging.hpp"
#include "backend/cuda/tables.hpp"
#include "backend/kernel_activation.hpp"
#include "kernels/cuda/launches.hpp"

namespace diffuse::cuda {

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);

  std::string name() const override { return "cuda"; }
  std::string target() const override;
  Compute compute() const override { return compute_; }
  DeviceFacts device() const override;
  std::function<void()> released() const override;

  Buffer allocate(std::size_t bytes) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void copy(ConstRows from, Rows to) override;
  void synchronize() override;
  bool host_addressable() const override { return false; }

  using Backend::pack;
  std::shared_ptr<const PackedMatrix> pack(std::span<const HostMatrix> parts, WeightUse use) override;

  void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale, Rows out) override;
  void add_positions(const float* table, std::span<const std::int32_t> rows, Rows out) override;

  void norm(const NormArgs& args) override;
  void matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) override;
  void gate(ConstRows x, Rows y, Activation activation) override;
  void activate(ConstRows x, Rows y, Activation activation) override;
  void add(ConstRows x, Rows y, float scale) override;
  void add_gated(ConstRows x, const float* gate, Rows y) override;
  void scale(Rows y, float factor) override;
  void softcap(Rows y, float cap) override;
  void rope(const RopeArgs& args) override;
  void unfold(const UnfoldArgs& args) override;

  std::size_t kv_page_bytes(const KvSpec& spec) const override;
  void kv_write(const KvPool& pool, ConstRows k, ConstRows v, std::span<const Segment> segments) override;
  void extrapolate(const KvPool& pool, std::span<const std::int32_t> from, std::span<const std::int32_t> to,
                   float weight) override;
  void attend(const AttentionArgs& args) override;
  void attention_weights(const AttentionWeightsArgs& args) override;
  void experts(const ExpertsArgs& args) override;

  void argmax(ConstRows logits, std::span<std::int32_t> ids) override;

  void expect(const ExpectedSteps& steps) override;
  std::unique_ptr<Repetition> make_repetition(std::span<const AttentionArgs> attentions) override;

  // For repetitions: puts the tables of a step where its operations will look for them, which then copy
  // nothing, and says what their launches depend on. `attentions`: one of each kind.
  StepShape prepare(const RepeatedStep& step, std::span<const AttentionArgs> attentions);
  // The first of all warnings; the others say the same.
  void warn_once(const std::string& text) {
    if (const auto warn = std::exchange(warn_, {}))
      warn("CUDA device " + std::to_string(device_->index()) + ": " + text);
  }

 private:
  // The plan of an attention over some segments, on the card.
  struct PlannedAttention {
    std::vector<std::int32_t> segments;  // what it was made for
    kernels::cuda::AttentionCounts counts;
    Table tasks, merges, pages;
    const kernels::cuda::AttentionSpan* tasks_at = nullptr;
    const kernels::cuda::AttentionMerge* merges_at = nullptr;
    const std::int32_t* pages_at = nullptr;
  };
  // Chosen experts of each row, and the rows of each expert.
  struct Routes {
    const std::int32_t* members = nullptr;  // [places] on the card
    const std::int32_t* places = nullptr;   // [rows, top_k]
    const float* weights = nullptr;         // [rows, top_k]
    std::int64_t used = 0;                  // places that have members, with their padding
    std::vector<std::int32_t> counts;       // [experts]
    std::vector<std::int32_t> offsets;      // [experts]
  };

  // Shapes of the packed matrices, for expect().
  struct Packed {
    std::int64_t outputs = 0;  // padded
    std::int64_t inputs = 0;   // padded
    std::int64_t element = 0;  // bytes
    bool crooked = false;      // rows are padded
    auto operator<=>(const Packed&) const = default;
    // Of an output head, or an embedding: no block has one as wide.
    bool table() const { return outputs > 16 * inputs; }
  };

  cudaStream_t stream() const { return device_->stream(); }
  // Room for the products of steps of so many rows, and where they sample.
  void expect_products(const ExpectedSteps& steps);
  void expect_experts(const ExpertsArgs& args, std::int64_t rows);
  void expect_attention(const AttentionArgs& args, const ExpectedSteps& steps);
  kernels::cuda::PageShape page_shape(const KvSpec& spec) const;
  // What cuBLASLt is to do of an epilogue. Depends on weights and epilogue alone, never on rows.
  Fused fused_part(const Matrix& weight, const Epilogue& epilogue);
  StagedRows stage(ConstRows x, const Matrix& weight);
  // The matmul, its inputs rounded where the weights are bf16.
  void product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue);
  // steady: such that the shape of the launch lasts while contexts grow; the bits are the same.
  PlannedAttention& plan_attention(const AttentionArgs& args, bool steady);
  const kernels::cuda::KvSlot* put_slots(std::int64_t rows, std::span<const Segment> segments);
  Routes route(const ExpertsArgs& args);
  // For each expert with members: its rows of `x` by its matrix into its rows of `y`.
  void expert_products(const ExpertsArgs& args, const Routes& routes,
                       std::shared_ptr<const PackedMatrix> ExpertWeights::*matrix,
                       const float* ExpertWeights::*bias, const StagedRows& x, float* y,
                       std::int64_t y_stride);

  using AttentionKey =
      std::tuple<std::int64_t, std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t>;
  static AttentionKey key_of(const AttentionArgs& args);

  std::shared_ptr<Device> device_;
  Compute compute_;
  bool graphs_;
  std::function<void(const std::string&)> warn_;
  std::set<Packed> packed_;
  Staging staging_;
  Products products_;
  Table ids_, positions_, slots_, watched_pages_, moved_pages_;
  // By what a plan depends on beside the segments: heads, window, causal, whose keys they are, and the pages'
  // shape.
  std::map<AttentionKey, PlannedAttention> attentions_;
  Scratch inputs_, results_;  // of a product: rows as it reads them, and its padded result
  Scratch embedded_;
  Scratch partials_;  // of attention
  Scratch router_, routing_, expert_inputs_, expert_both_, expert_middle_, expert_results_;
  Scratch argmax_, chosen_;
};

kernels::cuda::RowsIn in(ConstRows rows);
kernels::cuda::RowsOut out(Rows rows);
// Throws internal with the text where the condition does not hold.
void require(bool condition, const char* what);

}  // namespace diffuse::cuda
