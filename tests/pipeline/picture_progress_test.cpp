// What a run of pictures says of those under way.

#include "pipeline/picture_progress.hpp"

#include <gtest/gtest.h>

namespace diffuse::test {
namespace {

TEST(PictureProgress, ClocksAreRead) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(45.2), "0:46");
  EXPECT_EQ(clock_text(725), "12:05");
  EXPECT_EQ(clock_text(3600 * 3 + 432), "3:07:12");
}

TEST(PictureProgress, OneHasItsStepItsPaceAndWhatIsLeft) {
  PictureProgress progress({{.name = "fox", .first_step = 0, .steps = 4}});
  EXPECT_EQ(progress.on_step(0, 1, 30), "request fox: step 1 of 4");
  // From the first step on: texts are read before it.
  EXPECT_EQ(progress.on_step(0, 2, 31.5), "request fox: step 2 of 4, 1.50 s a step, 0:03 left");
  EXPECT_EQ(progress.on_step(0, 3, 34), "request fox: step 3 of 4, 2.00 s a step, 0:02 left");
  EXPECT_EQ(progress.on_step(0, 4, 36), "request fox: step 4 of 4, 2.00 s a step, 0:00 left");
}

TEST(PictureProgress, SeveralStandSideBySide) {
  PictureProgress progress({{.name = "a", .first_step = 10, .steps = 20},
                            {.name = "b", .first_step = 0, .steps = 2},
                            {.name = "c", .first_step = 0, .steps = 2}});
  progress.on_step(0, 11, 1);
  EXPECT_EQ(progress.on_step(0, 12, 2), "request a: step 12 of 20, 1.00 s a step, 0:08 left | 0 of 3 done");
  EXPECT_EQ(progress.on_step(1, 1, 3),
            "request a: step 12 of 20, 1.00 s a step, 0:08 left | request b: step 1 of 2 | 0 of 3 done");
  EXPECT_EQ(progress.on_step(1, 2, 4), "request a: step 12 of 20, 1.00 s a step, 0:08 left | 1 of 3 done");
}

TEST(PictureProgress, ManyAreCounted) {
  std::vector<PictureProgress::Of> of(7, {.name = "x", .first_step = 0, .steps = 9});
  PictureProgress progress(of);
  std::string text;
  for (std::size_t i = 0; i < 6; ++i) text = progress.on_step(i, 1, 1);
  EXPECT_NE(text.find("| and 2 more | 0 of 7 done"), std::string::npos) << text;
}

}  // namespace
}  // namespace diffuse::test
