#include "pipeline/refinement_work.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace diffuse {

namespace {

RefinementPass pass_of(const Descriptor& step) {
  const auto& entry = step.entry[0];
  return {.slot = entry.slot,
          .timestep = step.refining.timestep,
          .first_row = entry.first_position,
          .rows = entry.rows,
          .extrapolation = step.refining.extrapolation,
          .balance = step.refining.balance};
}

}  // namespace

std::size_t refinement_answer_bytes(const Descriptor& step, std::int64_t outputs) {
  const auto floats = step.samples() > 0 ? step.rows() * outputs : 0;
  return sizeof(step.number) + static_cast<std::size_t>(floats) * sizeof(float);
}

std::vector<float> read_refinement_answer(std::span<const std::byte> bytes, const Descriptor& step) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  if (number != step.number)
    throw_internal("the answer to step " + std::to_string(number) + " came in the place of step " +
                   std::to_string(step.number));
  std::vector<float> prediction((bytes.size() - sizeof(number)) / sizeof(float));
  if (!prediction.empty())
    std::memcpy(prediction.data(), bytes.data() + sizeof(number), prediction.size() * sizeof(float));
  return prediction;
}

void guide_prediction(std::span<float> with, std::span<const float> without, float guidance) {
  if (with.size() != without.size())
    throw_internal("branches of " + std::to_string(with.size()) + " and " + std::to_string(without.size()) +
                   " elements are joined");
  for (std::size_t i = 0; i < with.size(); ++i) with[i] = without[i] + guidance * (with[i] - without[i]);
}

RefinementWork::Stream& RefinementWork::stream_of(std::int32_t slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (streams_.size() <= index) streams_.resize(index + 1);
  return streams_[index];
}

void RefinementWork::admit(const Descriptor& command) {
  const auto& grid = command.refining.grid;
  executor_.admit(command.slot, {.frames = grid[0], .height = grid[1], .width = grid[2]},
                  command.memory_rows);
  auto& stream = stream_of(command.slot);
  stream.guidance = command.refining.guidance;
  stream.digests.assign(static_cast<std::size_t>(slice().layers() + (slice().front ? 1 : 0)), {});
}

void RefinementWork::tell(const Descriptor& command, std::span<const std::int32_t> /*told*/) {
  throw_internal("the stream in slot " + std::to_string(command.slot) + " is told of tokens");
}

std::vector<float> RefinementWork::downloaded(ConstRows rows) const {
  std::vector<float> values(static_cast<std::size_t>(rows.rows * rows.cols));
  backend_.download(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(rows.data));
  return values;
}

// Of all rows behind a layer at a step: of one patch after the other, where there are several.
void RefinementWork::digest(Stream& stream, std::size_t layer, const Descriptor& step, ConstRows hidden) {
  auto& steps = stream.digests[layer];
  const bool first_patch = step.entry[0].first_position == 0;
  const auto before = first_patch ? 0 : steps.back();
  const auto rows = downloaded(hidden);
  const auto value = digest64(std::as_bytes(std::span(rows)), before);
  if (first_patch) {
    steps.push_back(value);
  } else {
    steps.back() = value;
  }
}

void RefinementWork::run(const Descriptor& step, std::span<const std::byte> input, Rows hidden) {
  const auto pass = pass_of(step);
  auto& stream = stream_of(pass.slot);
  std::size_t layers_before = 0;
  if (slice().front) {
    std::vector<float> rows(input.size() / sizeof(float));
    std::memcpy(rows.data(), input.data(), input.size());
    executor_.embed(pass, rows, hidden);
    if (trace_) digest(stream, layers_before, step, hidden);
    layers_before = 1;
  }
  RefinementExecutor::AfterLayer after;
  if (trace_) {
    after = [&](std::int64_t layer, ConstRows rows) {
      digest(stream, layers_before + static_cast<std::size_t>(layer), step, rows);
    };
  }
  executor_.run(pass, hidden, after);
}

std::vector<std::byte> RefinementWork::answer(const Descriptor& step, ConstRows hidden) {
  auto prediction = downloaded(executor_.predict(pass_of(step), hidden));
  const bool joins = step.samples() > 0;
  if (!joins) {
    held_ = std::move(prediction);
    prediction.clear();
  } else if (step.refining.branch > 0) {
    // The branch with the text comes first; the schedule sends this one right behind it.
    guide_prediction(held_, prediction, stream_of(step.entry[0].slot).guidance);
    prediction = std::move(held_);
  }
  std::vector<std::byte> bytes(sizeof(step.number) + prediction.size() * sizeof(float));
  std::memcpy(bytes.data(), &step.number, sizeof(step.number));
  if (!prediction.empty())
    std::memcpy(bytes.data() + sizeof(step.number), prediction.data(), prediction.size() * sizeof(float));
  return bytes;
}

SlotLeft RefinementWork::release(const Descriptor& command) {
  executor_.release(command.slot);
  SlotLeft left;
  if (!trace_) return left;
  for (const auto& steps : stream_of(command.slot).digests)
    left.digests.insert(left.digests.end(), steps.begin(), steps.end());
  return left;
}

}  // namespace diffuse
