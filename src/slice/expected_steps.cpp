#include "slice/expected_steps.hpp"

#include <algorithm>

namespace diffuse {

ExpectedSteps expected_steps(const std::vector<std::vector<LoadedStep>>& blocks, const StepLimits& limits) {
  ExpectedSteps expected{.rows = limits.rows,
                         .samples = limits.samples,
                         .positions = std::min(limits.positions, limits.pages * kPageTokens),
                         .pages = limits.pages,
                         .attentions = {},
                         .experts = {}};
  for (const auto& block : blocks) {
    for (const auto& step : block) {
      if (const auto* self = std::get_if<AttentionStep>(&step)) {
        auto& args = expected.attentions.emplace_back();
        args.kv = &self->kv;
        args.heads = self->step->heads;
        args.window = self->step->window;
        args.causal = self->step->causal;
      } else if (const auto* cross = std::get_if<CrossAttentionStep>(&step)) {
        auto& args = expected.attentions.emplace_back();
        args.kv = &cross->kv;
        args.heads = cross->step->heads;
        args.causal = false;
        args.of_memory = true;
      } else if (const auto* experts = std::get_if<ExpertsStep>(&step)) {
        auto& args = expected.experts.emplace_back();
        args.router = experts->router.matrix.get();
        args.experts = experts->experts;
        args.top_k = experts->step->top_k;
      }
    }
  }
  return expected;
}

}  // namespace diffuse
