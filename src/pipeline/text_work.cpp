#include "pipeline/text_work.hpp"

#include <cstring>

namespace diffuse {

TextWork::TextWork(Executor& executor, Backend& backend) : executor_(executor) {
  if (executor.slice().back) chooser_.emplace(executor, backend);
}

void TextWork::admit(const Descriptor& command) {
  executor_.admit(command.slot, command.reserved_tokens, command.memory_rows, command.memory_from,
                  command.sampling.watched_ids > 0);
  if (chooser_) chooser_->admit(command);
}

void TextWork::tell(const Descriptor& command, std::span<const std::int32_t> told) {
  if (chooser_) chooser_->tell(command, told);
}

void TextWork::run(const Descriptor& step, std::span<const std::byte> input, Rows hidden) {
  std::vector<std::int32_t> ids(input.size() / sizeof(std::int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), input.data(), input.size());
  executor_.run(step, ids, hidden);
}

std::vector<std::byte> TextWork::answer(const Descriptor& step, ConstRows hidden) {
  return chooser_->sample(step, hidden);
}

SlotLeft TextWork::release(const Descriptor& command) {
  SlotLeft left;
  left.watched = executor_.take_watched(command.slot);
  if (chooser_) {
    const auto likely = chooser_->take_likely(command.slot);
    left.watched.insert(left.watched.end(), likely.begin(), likely.end());
  }
  left.digests = executor_.release(command.slot, command.reserved_tokens, command.keep_memory != 0);
  return left;
}

}  // namespace diffuse
