#pragma once
// Small tables of integers that operations read on the card: ids, slots of keys and values, spans and pages
// of attention. A table that is put again as it was is not copied again, for all layers of a step use the
// same.

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/device.hpp"
#include "backend/cuda/staging.hpp"

namespace diffuse::cuda {

class Table {
 public:
  // The table's place on the card, valid until the next put().
  template <class Entry>
  const Entry* put(Device& device, Staging& staging, std::span<const Entry> entries) {
    return reinterpret_cast<const Entry*>(put_bytes(device, staging, std::as_bytes(entries)));
  }

  // What was put before is forgotten: other memory may lie at the very same place.
  void expect(Device& device, std::int64_t bytes) {
    memory_.expect(device, bytes);
    held_.clear();
    place_ = nullptr;
  }

 private:
  const std::byte* put_bytes(Device& device, Staging& staging, std::span<const std::byte> bytes) {
    auto* place =
        memory_.get<std::byte>(device, static_cast<std::int64_t>(std::max<std::size_t>(bytes.size(), 1)));
    if (place == place_ && std::equal(held_.begin(), held_.end(), bytes.begin(), bytes.end())) return place;
    // Forgotten first: where the copy fails nothing is held.
    held_.clear();
    staging.upload(place, bytes);
    held_.assign(bytes.begin(), bytes.end());
    place_ = place;
    return place;
  }

  Scratch memory_;
  const std::byte* place_ = nullptr;
  std::vector<std::byte> held_;
};

}  // namespace diffuse::cuda
