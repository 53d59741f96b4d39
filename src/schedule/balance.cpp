#include "schedule/balance.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/error.hpp"

namespace diffuse {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Costs of slices; every comparison uses these same sums, so equal slices compare equal.
class StageCosts {
 public:
  StageCosts(std::span<const double> layer_cost, double front, double back)
      : before_(layer_cost.size() + 1, 0.0), front_(front), back_(back) {
    check(front);
    check(back);
    for (std::size_t i = 0; i < layer_cost.size(); ++i) {
      check(layer_cost[i]);
      before_[i + 1] = before_[i] + layer_cost[i];
    }
  }

  double operator()(std::size_t first, std::size_t last) const {
    double cost = before_[last] - before_[first];
    if (first == 0) cost += front_;
    if (last + 1 == before_.size()) cost += back_;
    return cost;
  }

 private:
  static void check(double cost) {
    if (!(cost >= 0) || !std::isfinite(cost)) throw_internal("balance: a cost is negative or not finite");
  }

  std::vector<double> before_;
  double front_;
  double back_;
};

}  // namespace

std::vector<std::pair<int, int>> balance(std::span<const double> layer_cost, double front_cost,
                                         double back_cost, int ranks) {
  if (ranks < 1) throw_internal("balance: no rank");
  const StageCosts cost(layer_cost, front_cost, back_cost);
  const std::size_t layers = layer_cost.size();
  const std::size_t slices = std::min(layers, static_cast<std::size_t>(ranks));
  if (slices == 0) return {};

  // Both tables: the best that slices `s`, `s + 1`, … can do with the layers from `first` on.
  const std::size_t width = layers + 1;
  std::vector<double> largest((slices + 1) * width, kNever);
  largest[slices * width + layers] = 0;
  for (std::size_t s = slices; s-- > 0;)
    for (std::size_t first = s; first < layers; ++first)
      for (std::size_t last = first + 1; last <= layers; ++last) {
        auto& best = largest[s * width + first];
        best = std::min(best, std::max(cost(first, last), largest[(s + 1) * width + last]));
      }
  const double limit = largest[0];

  std::vector<double> squares((slices + 1) * width, kNever);
  std::vector<std::size_t> cut(slices * width, 0);
  squares[slices * width + layers] = 0;
  for (std::size_t s = slices; s-- > 0;)
    for (std::size_t first = s; first < layers; ++first)
      for (std::size_t last = layers; last > first; --last) {
        const double stage = cost(first, last);
        if (stage > limit) continue;
        const double sum = stage * stage + squares[(s + 1) * width + last];
        if (sum < squares[s * width + first]) {
          squares[s * width + first] = sum;
          cut[s * width + first] = last;
        }
      }

  std::vector<std::pair<int, int>> result;
  std::size_t first = 0;
  for (std::size_t s = 0; s < slices; ++s) {
    const std::size_t last = cut[s * width + first];
    result.emplace_back(static_cast<int>(first), static_cast<int>(last));
    first = last;
  }
  return result;
}

double largest_stage_cost(std::span<const double> layer_cost, double front_cost, double back_cost,
                          std::span<const std::pair<int, int>> slices) {
  const StageCosts cost(layer_cost, front_cost, back_cost);
  double largest = 0;
  for (const auto& [first, last] : slices)
    largest = std::max(largest, cost(static_cast<std::size_t>(first), static_cast<std::size_t>(last)));
  return largest;
}

}  // namespace diffuse
