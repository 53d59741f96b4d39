#pragma once
// Rules as numbers of 32 bits that travel between ranks of one build, and back.

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace diffuse {

inline void put_list(std::vector<std::int32_t>& words, std::span<const std::int32_t> list) {
  words.push_back(static_cast<std::int32_t>(list.size()));
  words.insert(words.end(), list.begin(), list.end());
}

inline void put_double(std::vector<std::int32_t>& words, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  words.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(bits)));
  words.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(bits >> 32)));
}

// Takes them out in the order in which they were put. Throws internal where there are too few.
class PackedWords {
 public:
  explicit PackedWords(std::span<const std::int32_t> words) : words_(words) {}
  std::int32_t one() {
    if (words_.empty()) throw_internal("rules on tokens ended early on their way");
    const auto word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  std::vector<std::int32_t> list() {
    const auto count = one();
    if (count < 0 || static_cast<std::size_t>(count) > words_.size())
      throw_internal("rules on tokens ended early on their way");
    std::vector<std::int32_t> made(words_.begin(), words_.begin() + count);
    words_ = words_.subspan(static_cast<std::size_t>(count));
    return made;
  }
  double real() {
    const auto low = static_cast<std::uint32_t>(one());
    const auto high = static_cast<std::uint32_t>(one());
    return std::bit_cast<double>((std::uint64_t{high} << 32) | low);
  }
  std::span<const std::int32_t> rest() const { return words_; }

 private:
  std::span<const std::int32_t> words_;
};

}  // namespace diffuse
