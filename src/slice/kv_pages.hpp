#pragma once
// Which pages of the key-value pools belong to which slot. One table serves all layers of a slice: page p
// means page p of every layer's pool. Which page a position lies in never changes what is computed, only
// where it is kept.
//
// Slots may share pages: those of a memory, and those that several lanes of a sequence have in common. A page
// is free again when its last slot has left it. A shared page is never written: pages are shared whole, and
// the one that is written next is copied.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

// `slot` goes on from what another slot holds of the positions before `tokens`.
struct LaneMove {
  std::int32_t slot = 0;
  std::int32_t from = 0;
  std::int64_t tokens = 0;
};
struct PageCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

class KvPages {
 public:
  explicit KvPages(std::int64_t pages);

  // Takes a slot, with pages for `memory_rows` of an encoder's output: those of `memory_from` where it is not
  // -1 (the slot itself, where its memory was kept). The schedule keeps within the budget; throws internal
  // where it did not, or where the slot is taken.
  void admit(std::int32_t slot, std::int64_t memory_rows = 0, std::int32_t memory_from = -1);
  void release(std::int32_t slot, bool keep_memory = false);
  // Pages for positions up to `tokens`, as far as the slot does not have them.
  void grow(std::int32_t slot, std::int64_t tokens);
  // All moves at once: each slot then holds what its `from` held before any of them. Returns what is to be
  // copied, in every pool, before anything is written.
  std::vector<PageCopy> move(std::span<const LaneMove> moves);

  std::span<const std::int32_t> of(std::int32_t slot) const;
  std::span<const std::int32_t> memory_of(std::int32_t slot) const;
  std::int64_t memory_rows(std::int32_t slot) const;

 private:
  struct Owned {
    std::vector<std::int32_t> pages, memory;
    std::int64_t memory_rows = 0;
    bool taken = false;
  };
  std::int32_t take(std::int32_t slot);
  void share(std::int32_t page) { ++holders_[static_cast<std::size_t>(page)]; }
  void leave(std::vector<std::int32_t>& pages);
  Owned& taken(std::int32_t slot);
  const Owned* find(std::int32_t slot) const;

  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> holders_;  // [pages]: how many tables a page stands in
  std::vector<Owned> slots_;
};

}  // namespace diffuse
