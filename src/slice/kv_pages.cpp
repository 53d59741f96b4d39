#include "slice/kv_pages.hpp"

#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {

KvPages::KvPages(std::int64_t pages) {
  for (auto page = pages - 1; page >= 0; --page) free_.push_back(static_cast<std::int32_t>(page));
}

void KvPages::admit(std::int32_t slot, std::int64_t tokens, std::int64_t memory_rows) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  auto& owned = slots_[index];
  if (!owned.pages.empty()) throw_internal("slot " + std::to_string(slot) + " is admitted while it is taken");
  const auto needed = static_cast<std::size_t>((tokens + kPageTokens - 1) / kPageTokens +
                                               (memory_rows + kPageTokens - 1) / kPageTokens);
  if (needed > free_.size()) {
    throw_internal("slot " + std::to_string(slot) + " needs " + std::to_string(needed) +
                   " key-value pages, " + std::to_string(free_.size()) +
                   " are free: the schedule went over its budget");
  }
  owned.pages = take(tokens);
  owned.memory = take(memory_rows);
  owned.memory_rows = memory_rows;
}

std::vector<std::int32_t> KvPages::take(std::int64_t rows) {
  std::vector<std::int32_t> pages;
  for (; rows > 0; rows -= kPageTokens) {
    pages.push_back(free_.back());
    free_.pop_back();
  }
  return pages;
}

void KvPages::release(std::int32_t slot) {
  auto& owned = slots_.at(static_cast<std::size_t>(slot));
  for (auto* pages : {&owned.memory, &owned.pages}) {
    for (; !pages->empty(); pages->pop_back()) free_.push_back(pages->back());
  }
  owned.memory_rows = 0;
}

const KvPages::Owned* KvPages::find(std::int32_t slot) const {
  const auto index = static_cast<std::size_t>(slot);
  return slot < 0 || index >= slots_.size() ? nullptr : &slots_[index];
}

std::span<const std::int32_t> KvPages::of(std::int32_t slot) const {
  const auto* owned = find(slot);
  return owned == nullptr ? std::span<const std::int32_t>() : owned->pages;
}

std::span<const std::int32_t> KvPages::memory_of(std::int32_t slot) const {
  const auto* owned = find(slot);
  return owned == nullptr ? std::span<const std::int32_t>() : owned->memory;
}

std::int64_t KvPages::memory_rows(std::int32_t slot) const {
  const auto* owned = find(slot);
  return owned == nullptr ? 0 : owned->memory_rows;
}

}  // namespace diffuse
