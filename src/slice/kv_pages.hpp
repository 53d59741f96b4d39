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

  // Reserves pages for `tokens` positions of `slot`. The schedule keeps within the budget; throws internal
  // where it did not, or where the slot is taken.
  void admit(std::int32_t slot, std::int64_t tokens);
  void release(std::int32_t slot);
  std::span<const std::int32_t> of(std::int32_t slot) const;  // empty: the slot is free

 private:
  std::vector<std::int32_t> free_;
  std::vector<std::vector<std::int32_t>> slots_;
};

}  // namespace diffuse
