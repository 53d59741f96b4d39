#include "verify/patched.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.hpp"

namespace diffuse {
namespace {

using testing::HasSubstr;

Result pictures(const std::vector<int>& pixels) {
  Result result;
  auto& request = result.requests.emplace_back();
  request.id = "r";
  request.status = Status::done;
  auto& media = request.samples.emplace_back().media.emplace();
  media.kind = MediaKind::picture;
  media.element = MediaElement::u8;
  media.width = static_cast<std::int64_t>(pixels.size());
  for (const auto pixel : pixels) media.bytes.push_back(static_cast<std::byte>(pixel));
  return result;
}

TEST(Patched, DistancesOfPixels) {
  const auto error = pixel_error(pictures({0, 10, 255, 7}), pictures({3, 10, 254, 7}));
  EXPECT_EQ(error.pixels, 4U);
  EXPECT_DOUBLE_EQ(error.mean, 1.0);
  EXPECT_DOUBLE_EQ(error.largest, 3);
  EXPECT_NEAR(error.psnr, 10 * std::log10(255.0 * 255 / 2.5), 1e-9);
}

TEST(Patched, NothingDiffers) {
  const auto error = pixel_error(pictures({1, 2}), pictures({1, 2}));
  EXPECT_EQ(error.mean, 0);
  EXPECT_TRUE(std::isinf(error.psnr));
  EXPECT_THAT(patched_section({{.settings = "8 whole", .error = error}}, 1), HasSubstr("the same"));
}

TEST(Patched, OtherSizesAreRefused) {
  EXPECT_THROW(pixel_error(pictures({1, 2}), pictures({1})), Error);
  EXPECT_THROW(pixel_error(pictures({1}), Result()), Error);
  auto text = pictures({1});
  text.requests[0].samples[0].media.reset();
  EXPECT_THROW(pixel_error(text, text), Error);
}

TEST(Patched, JsonAndBack) {
  const PatchedRow row{4, 3, "8 whole, linear", {0.25, 7, 41.5, 900}, 1.5, 0.75};
  EXPECT_EQ(patched_row_from_json(to_json(row), "row"), row);
  auto same = row;
  same.error.psnr = std::numeric_limits<double>::infinity();
  EXPECT_EQ(patched_row_from_json(to_json(same), "row"), same);
  EXPECT_THAT(patched_section({row}, 3.0),
              HasSubstr("| 4 | 3 | 8 whole, linear | 0.2500 | 7 | 41.5 dB | 1.50 | 2.00 | 75 % |"));
}

}  // namespace
}  // namespace diffuse
