#include "slice/kv_pages.hpp"

#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {

KvPages::KvPages(std::int64_t pages) {
  for (auto page = pages - 1; page >= 0; --page) free_.push_back(static_cast<std::int32_t>(page));
}

void KvPages::admit(std::int32_t slot, std::int64_t tokens) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  const auto needed = static_cast<std::size_t>((tokens + kPageTokens - 1) / kPageTokens);
  if (!slots_[index].empty())
    throw_internal("slot " + std::to_string(slot) + " is admitted while it is taken");
  if (needed > free_.size()) {
    throw_internal("slot " + std::to_string(slot) + " needs " + std::to_string(needed) +
                   " key-value pages, " + std::to_string(free_.size()) +
                   " are free: the schedule went over its budget");
  }
  for (std::size_t i = 0; i < needed; ++i) {
    slots_[index].push_back(free_.back());
    free_.pop_back();
  }
}

void KvPages::release(std::int32_t slot) {
  auto& pages = slots_.at(static_cast<std::size_t>(slot));
  for (; !pages.empty(); pages.pop_back()) free_.push_back(pages.back());
}

std::span<const std::int32_t> KvPages::of(std::int32_t slot) const {
  const auto index = static_cast<std::size_t>(slot);
  if (slot < 0 || index >= slots_.size()) return {};
  return slots_[index];
}

}  // namespace diffuse
