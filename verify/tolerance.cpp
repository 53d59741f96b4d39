#include "verify/tolerance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::string_view kF32 = "f32";
constexpr std::string_view kBf16 = "bf16";
constexpr std::string_view kOneRounding = "one rounding an element, to nearest on every device";
constexpr std::string_view kFunctions = "exp, tanh and erf are our own, of few roundings; f32 in both modes";
constexpr std::string_view kRotation = "two products and a sum an element, fused or not; f32 in both modes";

constexpr std::array<Tolerance, 28> kTable{{
    {DeviceOp::embedding, kF32, 0, "a stored value and one scaling"},
    {DeviceOp::embedding, kBf16, 0, "the table is rounded once, to nearest even on every device"},
    {DeviceOp::elementwise, kF32, 1e-6, kOneRounding},
    {DeviceOp::elementwise, kBf16, 1e-6, kOneRounding},
    {DeviceOp::activation, kF32, 1e-6, kFunctions},
    {DeviceOp::activation, kBf16, 1e-6, kFunctions},
    {DeviceOp::norm, kF32, 2e-6,
     "sums of squares in another order; a mean is taken from elements that may lie close to it"},
    {DeviceOp::norm, kBf16, 2e-6, "computed in f32 in both modes"},
    {DeviceOp::rope, kF32, 1e-6, kRotation},
    {DeviceOp::rope, kBf16, 1e-6, kRotation},
    {DeviceOp::unfolding, kF32, 0, "elements are moved"},
    {DeviceOp::unfolding, kBf16, 0, "elements are moved"},
    {DeviceOp::product, kF32, 1e-6,
     "the sum over inputs in another order; over more than 256 of them, times the root of inputs / 256"},
    {DeviceOp::product, kBf16, 1e-6,
     "inputs are rounded alike and multiplied exactly; the f32 sum as in f32"},
    {DeviceOp::routing, kF32, 2e-6, "a quotient of exponentials, after a product"},
    {DeviceOp::routing, kBf16, 2e-6, "the router is f32 in both modes"},
    {DeviceOp::experts, kF32, 1e-6, "two products and a gate"},
    {DeviceOp::experts, kBf16, 2e-3,
     "inputs of the second product are rounded again: a sum on the border of two bf16 values falls to "
     "either"},
    {DeviceOp::attention, kF32, 1e-6, "scores, soft-max and sums over keys in another order"},
    {DeviceOp::attention, kBf16, 1e-6, "keys, values and queries are rounded alike; the sums are f32"},
    {DeviceOp::attention_weights, kF32, 1e-6,
     "scores in another order of sums, their exponentials over a sum in another order"},
    {DeviceOp::attention_weights, kBf16, 1e-6, "keys and queries are rounded alike; scores and sums are f32"},
    {DeviceOp::frame, kF32, 1e-3,
     "frames agree within some 1e-4 of a colour's step, so that only colours on the border of two values "
     "fall to either: 4e-5 on demo/wan"},
    {DeviceOp::frame, kBf16, 0.25,
     "what is rounded on the border of two bf16 values adds up over layers and steps: 0.075 to 0.14, and "
     "13 at the most, on demo/wan"},
    {DeviceOp::latent, kF32, 1e-4,
     "the operations' differences add up over layers and steps; the same border as against diffusers: 8e-6 "
     "on demo/wan"},
    {DeviceOp::latent, kBf16, 0.1,
     "what is rounded on the border of two bf16 values adds up, and one element may be far off: 0.021 on "
     "demo/wan after 20 guided steps"},
    {DeviceOp::logprob, kF32, 1e-3,
     "the operations' differences add up over layers, and logits reach some tens; the same border as against "
     "transformers"},
    {DeviceOp::logprob, kBf16, 0.25,
     "rows on the border of two bf16 values fall to either, at each product's inputs and in the cache, so "
     "that two "
     "runs are as far apart as each is from f32: 0.12 at most on models of 0.1 and 0.5 billion parameters"},
}};

}  // namespace

std::string_view name_of(DeviceOp operation) {
  switch (operation) {
    case DeviceOp::embedding:
      return "embedding";
    case DeviceOp::elementwise:
      return "elementwise";
    case DeviceOp::activation:
      return "activation";
    case DeviceOp::norm:
      return "norm";
    case DeviceOp::rope:
      return "rope";
    case DeviceOp::unfolding:
      return "unfolding";
    case DeviceOp::product:
      return "product";
    case DeviceOp::routing:
      return "routing";
    case DeviceOp::experts:
      return "experts";
    case DeviceOp::attention:
      return "attention";
    case DeviceOp::attention_weights:
      return "attention_weights";
    case DeviceOp::frame:
      return "frame";
    case DeviceOp::latent:
      return "latent";
    case DeviceOp::logprob:
      return "logprob";
  }
  return "?";
}

std::span<const Tolerance> tolerances() {
  return kTable;
}

const Tolerance& tolerance(DeviceOp operation, std::string_view compute) {
  for (const auto& row : kTable) {
    if (row.operation == operation && row.compute == compute) return row;
  }
  throw_internal("no tolerance is stated for '" + std::string(name_of(operation)) + "' in '" +
                 std::string(compute) + "'");
}

Json to_json(std::span<const Tolerance> rows) {
  Json json = Json::array();
  for (const auto& row : rows) {
    json.push_back({{"operation", name_of(row.operation)},
                    {"compute", row.compute},
                    {"allowed", row.allowed},
                    {"reason", row.reason}});
  }
  return json;
}

double allowed_for(const Tolerance& product, std::int64_t inputs) {
  return product.allowed * std::sqrt(static_cast<double>(std::max(inputs, kSummed)) / kSummed);
}

}  // namespace diffuse
