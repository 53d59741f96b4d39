#include "pipeline/error_budget.hpp"

#include <algorithm>
#include <numeric>

#include "schedule/simulator.hpp"

namespace diffuse {
namespace {

bool within(const ErrorBudget& budget, const BudgetPoint& point) {
  return point.mean * budget.margin <= budget.mean;
}

std::int64_t whole_steps(const BudgetPoint& point) {
  const auto& settings = point.patches.settings;
  return settings.whole_first + settings.whole_last;
}

const BudgetPoint* find(std::span<const BudgetPoint> measured, std::int64_t whole) {
  const auto found = std::ranges::find(measured, whole, whole_steps);
  return found == measured.end() ? nullptr : &*found;
}

// Where measuring begins: the place of the default in budget.whole, or the nearest one behind it.
std::size_t start_of(const ErrorBudget& budget) {
  const auto found = std::ranges::lower_bound(budget.whole, usual_whole_steps(budget.steps));
  const auto at = static_cast<std::size_t>(found - budget.whole.begin());
  return std::min(at, budget.whole.size() - 1);
}

}  // namespace

PatchFlags flags_of(const ErrorBudget& budget, std::int64_t whole) {
  PatchFlags flags;
  flags.carry_on = CarryOn::balanced;
  flags.settings = place_whole_steps(budget.patches, whole, budget.steps, flags.carry_on);
  flags.of_steps = budget.steps;
  return flags;
}

std::vector<std::int64_t> whole_steps_to_try(std::int64_t steps) {
  const auto least = std::int64_t{steps_before(CarryOn::balanced)} + 1;
  std::vector<std::int64_t> whole;
  for (const auto part :
       {steps / 10 + 1, usual_whole_steps(steps), steps / 3, steps / 2, 2 * steps / 3, 5 * steps / 6}) {
    const auto count = std::max(part, least);
    if (count < steps && (whole.empty() || count > whole.back())) whole.push_back(count);
  }
  return whole;
}

std::optional<PatchFlags> next_to_measure(const ErrorBudget& budget, std::span<const BudgetPoint> measured) {
  if (budget.whole.empty()) return std::nullopt;
  auto at = start_of(budget);
  const auto* first = find(measured, budget.whole[at]);
  if (first == nullptr) return flags_of(budget, budget.whole[at]);
  const bool fewer = within(budget, *first);
  for (const auto* point = first; within(budget, *point) == fewer;) {
    if (fewer ? at == 0 : at + 1 == budget.whole.size()) return std::nullopt;
    at = fewer ? at - 1 : at + 1;
    point = find(measured, budget.whole[at]);
    if (point == nullptr) return flags_of(budget, budget.whole[at]);
  }
  return std::nullopt;
}

std::optional<BudgetPoint> choose(const ErrorBudget& budget, std::span<const BudgetPoint> measured) {
  std::optional<BudgetPoint> best;
  for (const auto& point : measured) {
    if (!within(budget, point)) continue;
    if (!best || whole_steps(point) < whole_steps(*best)) best = point;
  }
  return best;
}

PreparedPicture smaller_request(const PreparedPicture& request, std::int64_t tokens) {
  auto smaller = request;
  smaller.samples = 1;
  smaller.output = {.frames = true, .latent = false};
  auto& grid = smaller.grid;
  while (grid.tokens() > tokens) {
    auto* longest = &grid.frames;
    for (auto* side : {&grid.height, &grid.width})
      if (*side > *longest) longest = side;
    *longest = std::max<std::int64_t>(*longest / 2, 1);
    smaller.latent.clear();
  }
  return smaller;
}

double simulated_speed_up(std::span<const std::int64_t> layers, const std::vector<PreparedPicture>& requests,
                          const PatchFlags& patches, std::int64_t pages) {
  const auto seconds = [&](std::span<const std::int64_t> stages, const PatchFlags& flags) {
    std::vector<RefinementNeed> needs;
    for (const auto& request : requests) {
      if (!request.problem.empty()) continue;
      auto picture = without_start(request, flags);
      picture.history = picture.keeps_history();
      needs.insert(needs.end(), static_cast<std::size_t>(request.samples), need_of(picture));
    }
    RefinementPolicy policy({static_cast<int>(stages.size()), pages}, needs);
    SimulationConfig simulation;
    simulation.send_buffers = 3;
    for (const auto count : stages) simulation.stages.push_back({0, static_cast<double>(count)});
    return simulate(simulation, bind_policy(policy), [](std::size_t, std::int64_t) { return false; })
        .makespan;
  };
  const std::int64_t all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  const auto split = seconds(layers, patches);
  return split > 0 ? seconds(std::span(&all, 1), {}) / split : 1;
}

}  // namespace diffuse
