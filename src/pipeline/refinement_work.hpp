#pragma once
// What a stage of a stack that refines does with rank 0's commands: passes through its slice, and on the last
// one the joining of a request's guidance branches. See TextWork, whose functions these are.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "pipeline/text_work.hpp"
#include "schedule/step.hpp"
#include "slice/refinement_executor.hpp"

namespace diffuse {

// Bytes of the answer to a pass: its number, and where branches join, the guided prediction
// [rows, outputs].
std::size_t refinement_answer_bytes(const Descriptor& step, std::int64_t outputs);
// The prediction of an answer; empty where nothing joined. Throws internal where it is another step's.
std::vector<float> read_refinement_answer(std::span<const std::byte> bytes, const Descriptor& step);

// without + (with - without) * guidance, element by element, in f32 and in this order: classifier-free
// guidance (arXiv 2207.12598), as diffusers computes it.
void guide_prediction(std::span<float> with, std::span<const float> without, float guidance);

class RefinementWork {
 public:
  // References must outlive it.
  RefinementWork(RefinementExecutor& executor, Backend& backend, bool trace)
      : executor_(executor), backend_(backend), trace_(trace) {}

  const RankSlice& slice() const { return executor_.slice(); }
  Buffer make_carry() const { return executor_.make_carry(); }

  void admit(const Descriptor& command);
  void tell(const Descriptor& command, std::span<const std::int32_t> told);  // never: nothing reads history
  void remember(std::int32_t slot, std::span<const float> memory) { executor_.remember(slot, memory); }
  // `input`: the tokens' rows of the latent, f32 [rows, inputs], on the first slice.
  void run(const Descriptor& step, std::span<const std::byte> input, Rows hidden);
  std::vector<std::byte> answer(const Descriptor& step, ConstRows hidden);
  // The digests of a slot: [own layers (with the front's)][steps that were run].
  SlotLeft release(const Descriptor& command);

 private:
  struct Stream {
    float guidance = 1;
    std::vector<std::vector<std::uint64_t>> digests;  // [own layers][steps]
  };
  Stream& stream_of(std::int32_t slot);
  void digest(Stream& stream, std::size_t layer, const Descriptor& step, ConstRows hidden);
  std::vector<float> downloaded(ConstRows rows) const;

  RefinementExecutor& executor_;
  Backend& backend_;
  bool trace_;
  std::vector<Stream> streams_;
  std::vector<float> held_;  // [rows, outputs]: what the branch before the last has predicted
};

}  // namespace diffuse
