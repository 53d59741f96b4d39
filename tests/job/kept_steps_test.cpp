#include "job/kept_steps.hpp"

#include <gtest/gtest.h>

#include "core/json.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

class Kept : public testing::Test {
 protected:
  TempFolder folder_;
  std::filesystem::path output_ = folder_ / "out.h5";
  const KeptStep step_ = {7, {1.5F, -2}, {std::byte{3}, std::byte{4}, std::byte{5}}};
};

TEST_F(Kept, IsFoundAsItWasLeft) {
  const KeptSteps kept(output_, 11);
  EXPECT_FALSE(kept.find(0, 0));
  kept.keep(2, 1, step_);
  EXPECT_EQ(kept.find(2, 1), step_);
  EXPECT_FALSE(kept.find(2, 0));
  auto later = step_;
  later.step = 8;
  later.rows[0] = 9;
  kept.keep(2, 1, later);
  EXPECT_EQ(KeptSteps(output_, 11).find(2, 1), later);
  kept.drop(2, 1);
  EXPECT_FALSE(kept.find(2, 1));
  kept.keep(0, 0, step_);
  kept.drop_all();
  EXPECT_FALSE(std::filesystem::exists(KeptSteps::folder_of(output_)));
}

TEST_F(Kept, OfAnotherRunIsPassedOver) {
  KeptSteps(output_, 11).keep(0, 0, step_);
  EXPECT_FALSE(KeptSteps(output_, 12).find(0, 0));
}

TEST_F(Kept, DamageIsPassedOver) {
  const KeptSteps kept(output_, 11);
  kept.keep(0, 0, step_);
  const auto path = KeptSteps::folder_of(output_) / "0-0";
  const auto whole = read_file(path, 1 << 20);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_bytes(path, damaged);
    EXPECT_FALSE(kept.find(0, 0)) << "byte " << at;
    write_bytes(path, whole.substr(0, at));
    EXPECT_FALSE(kept.find(0, 0)) << at << " bytes";
  }
  write_bytes(path, whole + "x");
  EXPECT_FALSE(kept.find(0, 0));
}

}  // namespace
}  // namespace diffuse::test
