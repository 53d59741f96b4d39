#include "cuda_harness.hpp"

namespace diffuse::kernels::cuda::test {
namespace {

std::vector<std::int32_t> ids_of(const Rows& logits) {
  std::vector<std::int64_t> workspace(argmax_workspace_bytes(logits.rows(), logits.cols()) / 8);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(logits.rows()), -7);
  EXPECT_EQ(argmax(nullptr, logits.in(), reinterpret_cast<std::byte*>(workspace.data()), ids.data()),
            cudaSuccess);
  return ids;
}

TEST(CudaArgmax, FindsTheLargestWhereverItLies) {
  for (const std::int64_t cols : {1, 2, 3, 255, 4095, 4096, 4097, 12289, 20003}) {
    for (const std::int64_t at : {std::int64_t{0}, cols / 3, cols - 1}) {
      Rows logits = Rows::normal(3, cols, 1, 1, at % 2 == 0 ? 0 : 3);
      logits.at(1, at) = 100;
      ASSERT_EQ(ids_of(logits)[1], at) << cols;
    }
  }
}

TEST(CudaArgmax, TheLowestOfEqualsWins) {
  // In one thread's quad, among the lanes of a slice, and over slices.
  for (const std::int64_t second : {1, 2, 5, 1030, 4095, 4096, 9000, 12287}) {
    Rows logits(1, 12288);
    for (std::int64_t c = 0; c < 12288; ++c) logits.at(0, c) = -1;
    logits.at(0, second) = 3;
    ASSERT_EQ(ids_of(logits)[0], second);
    logits.at(0, 0) = 3;
    ASSERT_EQ(ids_of(logits)[0], 0);
  }
  Rows zeros(1, 2);
  zeros.at(0, 0) = -0.0F;
  zeros.at(0, 1) = 0.0F;
  EXPECT_EQ(ids_of(zeros)[0], 0);
}

TEST(CudaArgmax, ANanAnywhereIsSeen) {
  for (const std::int64_t at : {0, 1, 4095, 4096, 9999}) {
    for (const float nan : {NAN, -NAN}) {
      Rows logits = Rows::normal(2, 10000, 2);
      logits.at(0, 5000) = 1e30F;
      logits.at(0, at) = nan;
      const auto ids = ids_of(logits);
      ASSERT_EQ(ids[0], -1);
      ASSERT_GE(ids[1], 0);
    }
  }
}

TEST(CudaArgmax, AnInfinityThatWinsChoosesNothing) {
  Rows logits(3, 5000);
  for (std::int64_t c = 0; c < 5000; ++c) {
    logits.at(0, c) = -INFINITY;
    logits.at(1, c) = static_cast<float>(c);
    logits.at(2, c) = -INFINITY;
  }
  logits.at(1, 17) = INFINITY;
  logits.at(2, 4999) = -3e38F;
  EXPECT_EQ(ids_of(logits), (std::vector<std::int32_t>{-1, -1, 4999}));
  EXPECT_EQ(ids_of(Rows(2, 0)), (std::vector<std::int32_t>{-1, -1}));
}

}  // namespace
}  // namespace diffuse::kernels::cuda::test
