// The weights of one attention head, for who asks where the answer was read from. The kernel of attend() does
// the work: a page at a time from an empty state leaves the page's own weights in its scores.

#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cpu/cpu_backend.hpp"
#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse::cpu {

void CpuBackend::attention_weights(const AttentionWeightsArgs& args) {
  const KvSpec& spec = args.kv->spec;
  const auto keys = args.out.cols;
  const bool fits = spec.kv_heads > 0 && args.heads % spec.kv_heads == 0 &&
                    args.q.cols == args.heads * spec.head_dim && args.head >= 0 && args.head < args.heads &&
                    args.q.rows == args.out.rows && keys > 0;
  if (!fits) throw_internal("CPU backend: the weights of a head over rows of another shape than its cache");
  const auto layout = page_layout(spec);
  const auto page_bytes = static_cast<std::int64_t>(kv_page_bytes(spec));
  const auto kv_head = args.head / (args.heads / spec.kv_heads);
  const auto pages = (keys + kPageTokens - 1) / kPageTokens;

  pool_.parallel_for(static_cast<std::size_t>(args.q.rows), [&](std::size_t index, int thread) {
    const auto row = static_cast<std::int64_t>(index);
    const auto width = kernels::round_up(spec.head_dim, 16);
    const auto values_width = kernels::round_up(layout.value_stride(), 16);
    float* q = thread_[static_cast<std::size_t>(thread)].get<float>(
        static_cast<std::size_t>(width + kPageTokens + values_width));
    float* scores = q + width;
    float* values = scores + kPageTokens;
    const float* from = args.q.data + row * args.q.stride + args.head * spec.head_dim;
    if (layout.bf16) {
      kernels_.round_bf16(from, q, spec.head_dim);
    } else {
      std::copy_n(from, spec.head_dim, q);
    }
    const std::int64_t position = keys - 1;
    float* out = args.out.data + row * args.out.stride;
    std::vector<double> largest;
    double highest = -std::numeric_limits<double>::infinity();
    double total = 0;
    for (std::int64_t page = 0; page < pages; ++page) {
      float page_largest = -std::numeric_limits<float>::infinity();
      float page_total = 0;
      std::fill_n(values, values_width, 0.0F);
      const auto* memory = args.kv->memory.data() + args.pages[static_cast<std::size_t>(page)] * page_bytes +
                           kv_head * layout.head_bytes();
      (layout.bf16 ? kernels_.attend_bf16 : kernels_.attend_f32)(
          {.q = q,
           .queries = 1,
           .position = &position,
           .slope = nullptr,
           .bias = nullptr,
           .head_dim = spec.head_dim,
           .value_stride = layout.value_stride(),
           .keys = memory,
           .values = memory + layout.key_bytes(),
           .first_position = page * kPageTokens,
           .scale = args.scale,
           .softcap = 0,
           .window = 0,
           .scores = scores,
           .state = {.largest = &page_largest, .weights = &page_total, .values = values}});
      std::copy_n(scores, std::min(kPageTokens, keys - page * kPageTokens), out + page * kPageTokens);
      const auto here = static_cast<double>(page_largest);
      const double before = highest;
      highest = std::max(highest, here);
      if (total != 0) total *= exact::exp(before - highest);
      total += static_cast<double>(page_total) * exact::exp(here - highest);
      largest.push_back(here);
    }
    for (std::int64_t page = 0; page < pages; ++page) {
      const auto factor =
          static_cast<float>(exact::exp(largest[static_cast<std::size_t>(page)] - highest) / total);
      const auto end = std::min((page + 1) * kPageTokens, keys);
      for (auto key = page * kPageTokens; key < end; ++key) out[key] *= factor;
    }
  });
}

}  // namespace diffuse::cpu
