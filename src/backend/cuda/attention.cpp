#include <algorithm>
#include <bit>
#include <stdexcept>

#include "backend/cuda/cuda_backend.hpp"
#include "core/error.hpp"

namespace diffuse::cuda {
namespace {

static_assert(kernels::kTile == kPageTokens);

// Blocks of a processor that attention is cut for: enough to hide the waits of one behind another.
constexpr std::int64_t kBlocksAProcessor = 4;

// Keys that a segment's rows reach, up to the last of them.
std::int64_t keys_of(const Segment& segment, bool causal) {
  return causal ? segment.first_position + segment.rows : segment.keys;
}

std::span<const std::int32_t> pages_of(const Segment& segment, bool causal) {
  const auto pages = (keys_of(segment, causal) + kPageTokens - 1) / kPageTokens;
  return segment.pages.first(static_cast<std::size_t>(pages));
}

// Segments and their pages in one list of integers, which is equal where they are.
std::vector<std::int32_t> flatten(std::span<const Segment> segments, bool causal) {
  std::vector<std::int32_t> flat;
  for (const auto& segment : segments) {
    const auto pages = pages_of(segment, causal);
    flat.push_back(static_cast<std::int32_t>(segment.first_row));
    flat.push_back(static_cast<std::int32_t>(segment.rows));
    flat.push_back(static_cast<std::int32_t>(segment.first_position));
    flat.push_back(static_cast<std::int32_t>(keys_of(segment, causal)));
    flat.insert(flat.end(), pages.begin(), pages.end());
  }
  return flat;
}

// Blocks a row task for contexts like these and somewhat longer ones: a power of two, so that a growing
// context changes it seldom.
std::int64_t steady_parts(std::span<const Segment> segments, bool causal, std::int64_t window) {
  std::int64_t most = 1;
  for (const auto& segment : segments) {
    auto parts = (keys_of(segment, causal) + kernels::cuda::kPartKeys - 1) / kernels::cuda::kPartKeys;
    if (window > 0) parts = std::min(parts, (window - 1) / kernels::cuda::kPartKeys + 2);
    most = std::max(most, parts);
  }
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(most)));
}

}  // namespace

kernels::cuda::PageShape CudaBackend::page_shape(const KvSpec& spec) const {
  return {spec.kv_heads, spec.head_dim, spec.value_dim, compute_ == Compute::bf16};
}

std::size_t CudaBackend::kv_page_bytes(const KvSpec& spec) const {
  return static_cast<std::size_t>(page_shape(spec).page_bytes());
}

const kernels::cuda::KvSlot* CudaBackend::put_slots(std::int64_t rows, std::span<const Segment> segments) {
  std::vector<kernels::cuda::KvSlot> slots(static_cast<std::size_t>(rows), {-1, 0});
  for (const auto& segment : segments) {
    for (std::int64_t row = 0; row < segment.rows; ++row) {
      const std::int64_t position = segment.first_position + row;
      slots.at(static_cast<std::size_t>(segment.first_row + row)) = {
          segment.pages[static_cast<std::size_t>(position / kPageTokens)],
          static_cast<std::int32_t>(position % kPageTokens)};
    }
  }
  require(std::all_of(slots.begin(), slots.end(), [](const auto& slot) { return slot.page >= 0; }),
          "keys and values of a row that no segment has");
  return slots_.put(*device_, staging_, std::span<const kernels::cuda::KvSlot>(slots));
}

void CudaBackend::kv_write(const KvPool& pool, ConstRows k, ConstRows v, std::span<const Segment> segments) {
  const KvSpec& spec = pool.spec;
  require(
      k.cols == spec.kv_heads * spec.head_dim && v.cols == spec.kv_heads * spec.value_dim && k.rows == v.rows,
      "keys or values of another shape than their cache");
  if (k.rows == 0) return;
  device_->use();
  const auto* slots_at = put_slots(k.rows, segments);
  device_->launched(
      kernels::cuda::kv_write(
          stream(),
          {.shape = page_shape(spec), .pool = pool.memory.data(), .k = in(k), .v = in(v), .slots = slots_at}),
      "writing keys and values");
}

void CudaBackend::extrapolate(const KvPool& pool, std::span<const std::int32_t> from,
                              std::span<const std::int32_t> to, float weight) {
  require(from.size() == to.size(), "pages extrapolated from another number of pages");
  if (to.empty()) return;
  device_->use();
  std::vector<std::int32_t> both(from.begin(), from.end());
  both.insert(both.end(), to.begin(), to.end());
  const auto* pages = moved_pages_.put(*device_, staging_, std::span<const std::int32_t>(both));
  device_->launched(
      kernels::cuda::extrapolate(stream(), {.pool = pool.memory.data(),
                                            .page_bytes = static_cast<std::int64_t>(kv_page_bytes(pool.spec)),
                                            .bf16 = compute_ == Compute::bf16,
                                            .from = pages,
                                            .to = pages + from.size(),
                                            .pages = static_cast<std::int64_t>(to.size()),
                                            .weight = weight}),
      "extrapolating keys and values");
}

CudaBackend::AttentionKey CudaBackend::key_of(const AttentionArgs& args) {
  const auto& spec = args.kv->spec;
  return {args.heads, args.window, args.causal, args.of_memory, spec.kv_heads, spec.head_dim, spec.value_dim};
}

CudaBackend::PlannedAttention& CudaBackend::plan_attention(const AttentionArgs& args, bool steady) {
  const auto& spec = args.kv->spec;
  auto& planned = attentions_[key_of(args)];
  auto segments = flatten(args.segments, args.causal);
  if (!planned.segments.empty() && planned.segments == segments) return planned;
  planned.segments.clear();

  std::vector<kernels::cuda::AttentionSpan> spans;
  std::vector<std::int32_t> pages;
  for (const auto& segment : args.segments) {
    spans.push_back({.first_row = static_cast<std::int32_t>(segment.first_row),
                     .rows = static_cast<std::int32_t>(segment.rows),
                     .first_position = static_cast<std::int32_t>(segment.first_position),
                     .keys = static_cast<std::int32_t>(keys_of(segment, args.causal)),
                     .first_page = static_cast<std::int32_t>(pages.size())});
    const auto own = pages_of(segment, args.causal);
    pages.insert(pages.end(), own.begin(), own.end());
  }
  kernels::cuda::AttentionPlan plan;
  try {
    plan = kernels::cuda::plan_attention(
        spans, page_shape(spec), args.heads, args.causal, args.window,
        {.scratch_bytes = device_->block_memory(),
         .blocks = kBlocksAProcessor * device_->processors(),
         .row_parts = steady ? steady_parts(args.segments, args.causal, args.window) : 1});
  } catch (const std::invalid_argument& problem) {
    throw_refused("CUDA device " + std::to_string(device_->index()) + " (" + device_->name() +
                  "): attention over heads of " + std::to_string(spec.head_dim) +
                  " elements: " + problem.what() + "; --device cpu can run it");
  }
  planned.counts = plan.counts;
  planned.tasks_at =
      planned.tasks.put(*device_, staging_, std::span<const kernels::cuda::AttentionSpan>(plan.tasks));
  planned.merges_at =
      planned.merges.put(*device_, staging_, std::span<const kernels::cuda::AttentionMerge>(plan.merges));
  planned.pages_at = planned.pages.put(*device_, staging_, std::span<const std::int32_t>(pages));
  planned.segments = std::move(segments);
  return planned;
}

void CudaBackend::attend(const AttentionArgs& args) {
  const KvSpec& spec = args.kv->spec;
  require(spec.kv_heads > 0 && args.heads % spec.kv_heads == 0 && args.q.cols == args.heads * spec.head_dim &&
              args.out.cols == args.heads * spec.value_dim && args.q.rows == args.out.rows,
          "attention over rows of another shape than their cache");
  require(args.causal ||
              (args.window == 0 && std::all_of(args.segments.begin(), args.segments.end(),
                                               [](const Segment& segment) { return segment.keys > 0; })),
          "attention over all keys that has a window, or no key");
  if (args.q.rows == 0 || args.segments.empty()) return;
  device_->use();
  const auto& planned = plan_attention(args, false);
  float* workspace = planned.counts.workspace_floats == 0
                         ? nullptr
                         : partials_.get<float>(*device_, planned.counts.workspace_floats);
  device_->launched(kernels::cuda::attend(stream(), {.shape = page_shape(spec),
                                                     .pool = args.kv->memory.data(),
                                                     .q = in(args.q),
                                                     .out = out(args.out),
                                                     .heads = args.heads,
                                                     .scale = args.scale,
                                                     .causal = args.causal,
                                                     .window = args.window,
                                                     .softcap = args.softcap,
                                                     .alibi_slopes = args.alibi_slopes,
                                                     .position_bias = args.position_bias,
                                                     .bias_reach = args.bias_reach,
                                                     .counts = planned.counts,
                                                     .tasks = planned.tasks_at,
                                                     .merges = planned.merges_at,
                                                     .pages = planned.pages_at,
                                                     .workspace = workspace}),
                    "attention");
}

StepShape CudaBackend::prepare(const RepeatedStep& step, std::span<const AttentionArgs> attentions) {
  device_->use();
  put_slots(step.rows.rows, step.segments);
  StepShape shape{step.rows.data, step.rows.rows, step.rows.cols, step.rows.stride, {}};
  for (auto args : attentions) {
    args.segments = args.of_memory ? step.memory : step.segments;
    shape.attentions.push_back(plan_attention(args, true).counts);
  }
  return shape;
}

std::unique_ptr<Repetition> CudaBackend::make_repetition(std::span<const AttentionArgs> attentions) {
  if (!graphs_) return Backend::make_repetition(attentions);
  // Layers that are alike share their tables.
  std::map<AttentionKey, AttentionArgs> different;
  for (const auto& args : attentions) different.emplace(key_of(args), args);
  std::vector<AttentionArgs> each;
  for (const auto& [key, args] : different) each.push_back(args);
  return std::make_unique<CudaRepetition>(*this, device_, each);
}

void CudaBackend::attention_weights(const AttentionWeightsArgs& args) {
  const KvSpec& spec = args.kv->spec;
  require(spec.kv_heads > 0 && args.heads % spec.kv_heads == 0 && args.q.cols == args.heads * spec.head_dim &&
              args.q.rows == args.out.rows && args.out.cols > 0,
          "the weights of a head over rows of another shape than its cache");
  if (args.q.rows == 0) return;
  device_->use();
  const auto* pages = watched_pages_.put(*device_, staging_, args.pages);
  device_->launched(kernels::cuda::attention_weights(stream(), {.shape = page_shape(spec),
                                                                .pool = args.kv->memory.data(),
                                                                .q = in(args.q),
                                                                .out = out(args.out),
                                                                .pages = pages,
                                                                .heads = args.heads,
                                                                .head = args.head,
                                                                .scale = args.scale}),
                    "attention weights");
}

}  // namespace diffuse::cuda
