#pragma once
// How far the same operation may differ between two kinds of device: the CPU and a CUDA card, or two kinds of
// card. Within one kind nothing may (docs/exactness.md). One table for everybody who compares across: the
// tests of the kernels and of the backends, `verify --against` and `compare`.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/json.hpp"

namespace diffuse {

enum class DeviceOp : std::uint8_t {
  embedding,    // a stored row, scaled; learned positions
  elementwise,  // sums, gated ones too, scalings, ReLU and its square
  activation,   // what needs exp, tanh or erf: activations, gates, soft caps
  norm,
  rope,
  unfolding,  // a convolution's windows
  product,    // with its epilogue
  routing,    // the weight of a chosen expert
  experts,    // from a row to the sum over its experts
  attention,
  attention_weights,  // of one head over all keys, which the times of words are read from
  frame,              // end to end: the colours of a picture's pixels
  latent,             // end to end: what a picture is decoded from
  logprob,            // end to end: the model's log-probability of a token
};

// Of a logprob: the largest difference, in nats. Of a frame: the mean difference of a sample's colours, in
// 1/255 of their range. Of the others, latents too: the largest difference between elements of one result,
// over the largest element of what is right. Roundings of a sum add up with the root of its elements' number:
// a product's row holds up to kSummed inputs, and for more allowed_for says.
inline constexpr std::int64_t kSummed = 256;
struct Tolerance {
  DeviceOp operation;
  std::string_view compute;  // "f32", "bf16": the mode of both sides
  double allowed;            // 0: the same bits
  std::string_view reason;
};

std::string_view name_of(DeviceOp operation);  // its spelling above

// A row for each operation in each mode.
std::span<const Tolerance> tolerances();
const Tolerance& tolerance(DeviceOp operation, std::string_view compute);  // throws internal: no such row

double allowed_for(const Tolerance& product, std::int64_t inputs);

// [{"operation", "compute", "allowed", "reason"}, …]
Json to_json(std::span<const Tolerance> rows);

}  // namespace diffuse
