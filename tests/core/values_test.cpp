#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/hash.hpp"
#include "core/size.hpp"

namespace diffuse {
namespace {

TEST(CheckedSize, RefusesWhatOverflows) {
  const CheckedSize large = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THROW(large + 1, Error);
  EXPECT_THROW(large * 2, Error);
  EXPECT_THROW(CheckedSize(1) - 2, Error);
  EXPECT_EQ((CheckedSize(6) * 7 + 1 - 3).value(), 40U);
}

TEST(CheckedSize, CountsAShape) {
  EXPECT_EQ(count_of({}), 1U);
  EXPECT_EQ(count_of(std::array<std::int64_t, 3>{2, 3, 4}), 24U);
  EXPECT_EQ(count_of(std::array<std::int64_t, 2>{0, 1LL << 62}), 0U);
  EXPECT_THROW(count_of(std::array<std::int64_t, 1>{-1}), Error);
  EXPECT_THROW(count_of(std::array<std::int64_t, 3>{1LL << 40, 1LL << 40, 1}), Error);
}

TEST(Hash, IsTheStandardOne) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.update(std::string("a"));
  hash.update(std::string("bc"));
  EXPECT_EQ(hash.hex_digest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest64({}), 0x2d06800538d394c2U);
}

TEST(Format, WritesNumbersForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1ULL << 40), "1.0 TiB");
  EXPECT_EQ(fixed(1.005, 1), "1.0");
}

}  // namespace
}  // namespace diffuse
