#pragma once
// The backend of the processor: one SIMD target's kernels over a team of threads. Every call has run when it
// returns. Work is cut so that an output element is computed whole by one thread; where the cuts lie changes
// no bit (kernels/kernels.hpp).

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/matrix.hpp"
#include "backend/cpu/memory.hpp"
#include "backend/kernel_activation.hpp"
#include "core/thread_pool.hpp"
#include "kernels/layout.hpp"
#include "kernels/targets.hpp"

namespace diffuse::cpu {

class CpuBackend : public Backend {
 public:
  CpuBackend(int threads, Compute compute, kernels::SimdTarget target);

  std::string name() const override { return "cpu"; }
  std::string target() const override { return std::string(kernels::name_of(target_)); }
  Compute compute() const override { return compute_; }

  Buffer allocate(std::size_t bytes) override { return allocate_zeroed(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void copy(ConstRows from, Rows to) override;
  void synchronize() override {}
  bool host_addressable() const override { return true; }

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

 private:
  // Activations as a product reads them, and the kernel that does.
  struct Inputs {
    const std::byte* data;  // [rows, depth]
    std::int64_t stride;    // in elements
    std::int64_t depth;     // padded where the kernel wants it
    std::int64_t element;   // bytes
    void (*kernel)(const kernels::PanelProduct&);
    std::int64_t pass_rows;  // of the kernel
  };
  struct PanelTask;
  struct PanelWalk;
  struct AttentionBlock;
  struct AttentionScratch;

  // Calls body(row) for each row, cut over the threads where a row costs enough.
  void each_row(std::int64_t rows, std::int64_t cost, const std::function<void(std::int64_t row)>& body);
  Inputs inputs_of(ConstRows x, const Matrix& weight, bool round);
  PanelWalk walk_of(const Inputs& inputs, const Matrix& weight, std::int64_t rows);
  void multiply_panel(const Inputs& inputs, const Matrix& weight, const PanelWalk& walk,
                      const PanelTask& task, float* acc, std::byte* expanded);
  // The matmul, with activations rounded to bf16 or as they are whatever the compute mode is.
  void product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue, bool round);
  kernels::PageLayout page_layout(const KvSpec& spec) const;
  std::vector<AttentionBlock> attention_blocks(const AttentionArgs& args) const;
  AttentionScratch attention_scratch(const AttentionArgs& args, std::int64_t queries, int thread);
  void gather_bias(const AttentionArgs& args, const AttentionBlock& block, std::int64_t page,
                   float* bias) const;
  void attend_pages(const AttentionArgs& args, const AttentionBlock& block, const AttentionScratch& scratch,
                    const kernels::AttentionState& whole);
  void finish_block(const AttentionArgs& args, const AttentionBlock& block,
                    const kernels::AttentionState& whole);
  void attend_in_parts(const AttentionArgs& args, std::span<const AttentionBlock> blocks,
                       std::int64_t queries);
  void route(const ExpertsArgs& args, std::int32_t* chosen, float* weights);

  ThreadPool pool_;
  Compute compute_;
  kernels::SimdTarget target_;
  const kernels::KernelTable& kernels_;
  Scratch inputs_;                 // of a matmul: activations as bf16
  Scratch router_;                 // logits of experts()
  Scratch routed_[3];              // rows of one expert: in, middle, out
  Scratch gated_;                  // the middle before its gate
  Scratch partials_;               // attention states of cut contexts
  std::vector<Scratch> thread_;    // one a thread
  std::vector<Scratch> expanded_;  // one a thread: a piece of a panel as a product reads it
};

}  // namespace diffuse::cpu
