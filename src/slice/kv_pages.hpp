#pragma once
// Which pages of the key-value pools belong to which slot. One table serves all layers of a slice: page p
// means page p of every layer's pool. Which page a position lies in never changes what is computed, only
// where it is kept.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

class KvPages {
 public:
  explicit KvPages(std::int64_t pages);

  // Reserves pages for `tokens` positions of `slot`, and others for `memory_rows` of an encoder's output. The
  // schedule keeps within the budget; throws internal where it did not, or where the slot is taken.
  void admit(std::int32_t slot, std::int64_t tokens, std::int64_t memory_rows = 0);
  void release(std::int32_t slot);
  std::span<const std::int32_t> of(std::int32_t slot) const;  // empty: the slot is free
  std::span<const std::int32_t> memory_of(std::int32_t slot) const;
  std::int64_t memory_rows(std::int32_t slot) const;

 private:
  struct Owned {
    std::vector<std::int32_t> pages, memory;
    std::int64_t memory_rows = 0;
  };
  std::vector<std::int32_t> take(std::int64_t rows);
  const Owned* find(std::int32_t slot) const;

  std::vector<std::int32_t> free_;
  std::vector<Owned> slots_;
};

}  // namespace diffuse
