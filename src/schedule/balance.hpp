#pragma once
// Cutting a stack of layers into contiguous slices of nearly equal cost. Pure.

#include <span>
#include <utility>
#include <vector>

namespace diffuse {

// Slices [first, last) for ranks 0, 1, …, so that the most costly stage costs as little as possible; the
// front end weighs on the first slice, the back end on the last. min(ranks, layers) slices, none of them
// empty; ranks beyond them get none. Of such cuts the evenest is taken (least sum of squared stage costs),
// then the one with the longest early slices, so the result depends on nothing but the arguments. No layers:
// no slices. Throws internal on ranks < 1, or a cost that is negative or not finite.
std::vector<std::pair<int, int>> balance(std::span<const double> layer_cost, double front_cost,
                                         double back_cost, int ranks);

// The cost of the most costly stage of such slices.
double largest_stage_cost(std::span<const double> layer_cost, double front_cost, double back_cost,
                          std::span<const std::pair<int, int>> slices);

}  // namespace diffuse
