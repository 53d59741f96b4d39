#pragma once
// What a stage of a model of tokens does with rank 0's commands: rows through its slice, and on the last one
// the choosing. One of the alternatives of StageWork, which share this set of functions.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/chooser.hpp"
#include "schedule/step.hpp"
#include "slice/executor.hpp"

namespace diffuse {

// What is left of a slot that is given up: what was watched, and the digests.
struct SlotLeft {
  std::vector<float> watched;
  std::vector<std::uint64_t> digests;
};

class TextWork {
 public:
  // References must outlive it. The last slice's also chooses.
  TextWork(Executor& executor, Backend& backend);

  const RankSlice& slice() const { return executor_.slice(); }
  Buffer make_carry() const { return executor_.make_carry(); }

  void admit(const Descriptor& command);
  // The prompt with the packed rules behind it, on the last slice, where the sampling reads_history().
  void tell(const Descriptor& command, std::span<const std::int32_t> told);
  void remember(std::int32_t slot, std::span<const float> memory) { executor_.remember(slot, memory); }
  // `input` are the rows' ids, on the first slice; empty on the others. In place: hidden [rows, hidden].
  void run(const Descriptor& step, std::span<const std::byte> input, Rows hidden);
  // On the last slice: what rank 0 is to know of the step's rows `hidden` [rows, hidden].
  std::vector<std::byte> answer(const Descriptor& step, ConstRows hidden);
  SlotLeft release(const Descriptor& command);

 private:
  Executor& executor_;
  std::optional<Chooser> chooser_;
};

}  // namespace diffuse
