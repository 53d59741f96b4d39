// The stand-in runtime keeps what streams and events promise, and nothing more.

#include "standin_runtime.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "standin_faults.hpp"

namespace {

using standin::DeviceAccess;

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}

template <typename Value>
Value* device(std::size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(Value)), cudaSuccess);
  return static_cast<Value*>(memory);
}

template <typename Value>
Value* pinned(std::size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaHostAlloc(&memory, count * sizeof(Value), cudaHostAllocDefault), cudaSuccess);
  return static_cast<Value*>(memory);
}

void put(int* to, int value, cudaStream_t stream) {
  EXPECT_EQ(standin_enqueue(stream, [=] { *to = value; }), cudaSuccess);
}

class StandinRuntime : public testing::Test {
 protected:
  void SetUp() override { standin::inject(""); }
  void TearDown() override {
    standin::inject("");
    standin::reset_device();
    EXPECT_EQ(standin::live_objects(), before_);
  }
  std::size_t before_ = standin::live_objects();
};

TEST_F(StandinRuntime, WorkRunsOnlyWhenItIsWaitedFor) {
  auto* stream = new_stream();
  auto* on_device = device<int>(1);
  auto* on_host = pinned<int>(1);
  *on_host = 1;
  put(on_device, 7, stream);
  EXPECT_EQ(cudaMemcpyAsync(on_host, on_device, 4, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(*on_host, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*on_host, 7);
  EXPECT_EQ(cudaFree(on_device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(on_host), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(StandinRuntime, StreamsKnowEachOtherByEventsAlone) {
  auto* first = new_stream();
  auto* second = new_stream();
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  auto* data = device<int>(1);
  auto* seen = pinned<int>(1);
  const auto read = [&] { cudaMemcpyAsync(seen, data, 4, cudaMemcpyDeviceToHost, second); };
  put(data, 1, first);
  cudaStreamSynchronize(first);

  put(data, 2, first);
  read();
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(*seen, 1) << "nothing ordered the read behind the write";

  cudaEventRecord(event, first);
  put(data, 3, first);
  EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  read();
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(*seen, 2) << "all up to the event, and nothing behind it";
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  read();
  cudaStreamSynchronize(second);
  EXPECT_EQ(*seen, 3);

  cudaFree(data);
  cudaFreeHost(seen);
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_F(StandinRuntime, PageableMemoryIsReadAtTheCallAndPinnedMemoryLater) {
  auto* stream = new_stream();
  auto* data = device<int>(2);
  int pageable = 1;
  auto* fixed = pinned<int>(1);
  *fixed = 1;
  cudaMemcpyAsync(data, &pageable, 4, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(data + 1, fixed, 4, cudaMemcpyHostToDevice, stream);
  pageable = 2;
  *fixed = 2;
  int seen[2] = {};
  EXPECT_EQ(cudaMemcpyAsync(seen, data, 8, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[1], 2);
  cudaFree(data);
  cudaFreeHost(fixed);
  cudaStreamDestroy(stream);
}

TEST_F(StandinRuntime, QueriesMoveAStreamByOneStep) {
  auto* stream = new_stream();
  auto* data = device<int>(1);
  put(data, 1, stream);
  put(data, 2, stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  cudaFree(data);
  cudaStreamDestroy(stream);
}

TEST_F(StandinRuntime, WorkThatCannotCompleteYetLetsOtherThreadsIn) {
  auto* stream = new_stream();
  auto* other = new_stream();
  auto* data = device<int>(1);
  auto* flag = device<int>(1);
  put(flag, 0, stream);
  cudaStreamSynchronize(stream);
  standin::enqueue_polled(stream, [=] { return *flag == 1; }, {{flag, 4}});
  put(data, 5, stream);
  std::thread opener([&] {
    put(flag, 1, other);
    cudaStreamSynchronize(other);
  });
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  opener.join();
  cudaFree(data);
  cudaFree(flag);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
}

TEST_F(StandinRuntime, FreshMemoryIsPoisonAndARunnyLaunchIsSticky) {
  auto* stream = new_stream();
  auto* data = device<float>(3);
  float seen = 0;
  cudaMemcpyAsync(&seen, data + 2, 4, cudaMemcpyDeviceToHost, stream);
  EXPECT_NE(seen, seen);
  standin_enqueue(stream, [] { throw std::runtime_error("on purpose"); });
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemsetAsync(data, 0, 4, stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudaFree(data);
  cudaStreamDestroy(stream);
}

TEST_F(StandinRuntime, FaultsHitTheCallThatTheyName) {
  standin::inject("cudaMalloc:2,cudaStreamQuery:1=719,kernel:1");
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_FALSE(standin::fault_happened());
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorMemoryAllocation);
  EXPECT_TRUE(standin::fault_happened());
  auto* stream = new_stream();
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(standin_enqueue(stream, [] {}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(standin::call_counts().at("cudaMalloc"), 2);
  standin::reset_device();
  standin::inject("*:2");
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorUnknown) << "freed all the same";
  cudaStreamDestroy(stream);
}

using StandinRuntimeDeathTest = StandinRuntime;

TEST_F(StandinRuntimeDeathTest, MisuseEndsTheProcess) {
  // Each process that is to die begins anew, and reads this when it first uses the runtime.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("DIFFUSE_STANDIN_PROTECT", "1", 1);
  auto* stream = new_stream();
  auto* data = device<int>(4);
  auto* fixed = pinned<int>(4);
  std::vector<int> plain(4);
  EXPECT_DEATH(*static_cast<volatile int*>(data) = 1, "") << "device memory touched by the host";
  EXPECT_DEATH(cudaMemcpyAsync(plain.data(), data, 4, cudaMemcpyHostToDevice, stream), "direction");
  EXPECT_DEATH(cudaMemcpyAsync(data, plain.data(), 20, cudaMemcpyHostToDevice, stream), "over the end");
  EXPECT_DEATH(standin::enqueue(stream, [] {}, {{plain.data(), 4}}), "not on a device");
  EXPECT_DEATH(
      {
        cudaMemcpyAsync(data, fixed, 4, cudaMemcpyHostToDevice, stream);
        cudaFreeHost(fixed);
      },
      "still queued");
  EXPECT_DEATH(
      {
        standin::enqueue(stream, [] {}, {{data, 4}});
        cudaFree(data);
      },
      "still queued");
  EXPECT_DEATH(
      {
        standin_enqueue(stream, [=] { cudaStreamQuery(stream); });
        cudaStreamSynchronize(stream);
      },
      "called by work");
  EXPECT_DEATH(
      {
        cudaFree(data);
        cudaFree(data);
      },
      "");
  EXPECT_EXIT(std::exit(0), testing::ExitedWithCode(99), "leaked");
  cudaFree(data);
  cudaFreeHost(fixed);
  cudaStreamDestroy(stream);
}

}  // namespace
