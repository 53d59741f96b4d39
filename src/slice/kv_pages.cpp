#include "slice/kv_pages.hpp"

#include <string>
#include <utility>

#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {

KvPages::KvPages(std::int64_t pages) : holders_(static_cast<std::size_t>(pages)) {
  for (auto page = pages - 1; page >= 0; --page) free_.push_back(static_cast<std::int32_t>(page));
}

std::int32_t KvPages::take(std::int32_t slot) {
  if (free_.empty()) {
    throw_internal("slot " + std::to_string(slot) + " needs a key-value page, and none of " +
                   std::to_string(holders_.size()) + " is free: the schedule went over its budget");
  }
  const auto page = free_.back();
  free_.pop_back();
  share(page);
  return page;
}

void KvPages::leave(std::vector<std::int32_t>& pages) {
  for (; !pages.empty(); pages.pop_back()) {
    if (--holders_[static_cast<std::size_t>(pages.back())] == 0) free_.push_back(pages.back());
  }
}

KvPages::Owned& KvPages::taken(std::int32_t slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (slot < 0 || index >= slots_.size() || !slots_[index].taken)
    throw_internal("slot " + std::to_string(slot) + " is used and nobody was admitted there");
  return slots_[index];
}

void KvPages::admit(std::int32_t slot, std::int64_t memory_rows, std::int32_t memory_from) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  auto& owned = slots_[index];
  if (owned.taken) throw_internal("slot " + std::to_string(slot) + " is admitted while it is taken");
  owned.taken = true;
  if (memory_from != slot) {
    leave(owned.memory);
    if (memory_from >= 0) {
      owned.memory = taken(memory_from).memory;
      for (const auto page : owned.memory) share(page);
    } else {
      for (auto rows = memory_rows; rows > 0; rows -= kPageTokens) owned.memory.push_back(take(slot));
    }
    owned.memory_rows = memory_rows;
  }
  const auto needed = (memory_rows + kPageTokens - 1) / kPageTokens;
  if (owned.memory_rows != memory_rows || static_cast<std::int64_t>(owned.memory.size()) != needed)
    throw_internal("slot " + std::to_string(slot) + " takes over a memory of another size");
}

void KvPages::release(std::int32_t slot, bool keep_memory) {
  auto& owned = taken(slot);
  leave(owned.pages);
  owned.taken = false;
  if (keep_memory) return;
  leave(owned.memory);
  owned.memory_rows = 0;
}

void KvPages::grow(std::int32_t slot, std::int64_t tokens) {
  auto& owned = taken(slot);
  while (static_cast<std::int64_t>(owned.pages.size()) * kPageTokens < tokens)
    owned.pages.push_back(take(slot));
}

std::vector<PageCopy> KvPages::move(std::span<const LaneMove> moves) {
  std::vector<PageCopy> copies;
  std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> tables;
  for (const auto& each : moves) {
    const auto whole = static_cast<std::size_t>(each.tokens / kPageTokens);
    const bool part = each.tokens % kPageTokens != 0;
    const auto& from = taken(each.from).pages;
    if (from.size() < whole + (part ? 1 : 0))
      throw_internal("slot " + std::to_string(each.slot) + " goes on from positions that slot " +
                     std::to_string(each.from) + " does not hold");
    auto& table = tables.emplace_back(each.slot, std::vector<std::int32_t>()).second;
    for (std::size_t i = 0; i < whole; ++i) {
      table.push_back(from[i]);
      share(from[i]);
    }
    if (!part) continue;
    table.push_back(take(each.slot));
    copies.push_back({from[whole], table.back()});
  }
  // Only now, for others may go on from what a slot gives up.
  for (auto& [slot, table] : tables) {
    auto& owned = taken(slot);
    leave(owned.pages);
    owned.pages = std::move(table);
  }
  return copies;
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
