// Streams of the stand-in that record: what becomes part of a graph, what NVIDIA forbids meanwhile, and what
// is found that a real card would answer with wrong data.

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace {

void put(int* to, int value, cudaStream_t stream) {
  EXPECT_EQ(standin::enqueue(stream, [=] { *to = value; }, {{to, sizeof(int)}}), cudaSuccess);
}

// Of a kernel.
struct Arguments {
  int rows = 0;
  int* at = nullptr;
};

class StandinCapture : public testing::Test {
 protected:
  void SetUp() override {
    standin::inject("");
    stream_ = new_stream();
    other_ = new_stream();
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, sizeof(int)), cudaSuccess);
    data_ = static_cast<int*>(memory);
    ASSERT_EQ(cudaHostAlloc(&memory, 2 * sizeof(int), cudaHostAllocDefault), cudaSuccess);
    pinned_ = static_cast<int*>(memory);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming), cudaSuccess);
    put(data_, 0, stream_);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void TearDown() override {
    standin::inject("");
    standin::reset_device();
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    for (auto* event : {event_, joined_}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    for (auto* stream : {stream_, other_}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(standin::live_objects(), before_);
  }

  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  // The graph of what `work` queues, ready to be launched.
  cudaGraphExec_t recorded(const std::function<void()>& work) {
    begin();
    work();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }
  // A call that is forbidden gives `error` and spoils the capture.
  void expect_spoils(const std::function<cudaError_t()>& call, cudaError_t error) {
    begin();
    EXPECT_EQ(call(), error);
    cudaStreamCaptureStatus status{};
    EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(cudaMemsetAsync(data_, 0, 4, stream_), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << "the stream is an ordinary one again";
  }
  int value() {
    EXPECT_EQ(cudaMemcpyAsync(pinned_, data_, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return *pinned_;
  }

  std::size_t before_ = standin::live_objects();
  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  cudaEvent_t joined_ = nullptr;
  int* data_ = nullptr;
  int* pinned_ = nullptr;
};

TEST_F(StandinCapture, RecordsWithoutRunningAndRunsWithEachLaunch) {
  cudaStreamCaptureStatus status{};
  auto* executable = recorded([&] {
    EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    put(data_, 1, stream_);
    standin::enqueue(stream_, [data = data_] { *data += 1; }, {{data_, 4}});
    standin::enqueue_library(stream_, [data = static_cast<int*>(standin::reach(data_))] { *data *= 5; },
                             {{data_, 4}});
  });
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(value(), 0) << "nothing ran";
  for (int i = 0; i < 3; ++i) {
    put(data_, 100, stream_);
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(value(), 10) << "behind what was queued before it, and whole";
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StandinCapture, ALaunchIsOnePieceOfWork) {
  auto* executable = recorded([&] {
    put(data_, 1, stream_);
    put(data_, 2, stream_);
  });
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StandinCapture, PinnedMemoryIsReadWithEachLaunch) {
  auto* executable =
      recorded([&] { cudaMemcpyAsync(data_, pinned_ + 1, 4, cudaMemcpyHostToDevice, stream_); });
  for (const int number : {3, 4}) {
    pinned_[1] = number;
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(value(), number);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StandinCapture, LaunchesOfOneGraphFollowEachOtherOnAllStreams) {
  auto* executable = recorded([&] {
    standin::enqueue(stream_, [data = data_] { *data += 1; }, {{data_, 4}});
  });
  EXPECT_EQ(cudaGraphLaunch(executable, other_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(value(), 2);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StandinCapture, AForkThatIsJoinedIsPartOfIt) {
  auto* executable = recorded([&] {
    EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
    put(data_, 6, other_);
    EXPECT_EQ(cudaEventRecord(joined_, other_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream_, joined_, 0), cudaSuccess);
  });
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(value(), 6);
  EXPECT_EQ(cudaEventSynchronize(joined_), cudaErrorCapturedEvent) << "it stands for nothing that runs";
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StandinCapture, AForkThatIsNotJoinedIsRefused) {
  begin();
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(joined_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, joined_, 0), cudaSuccess);
  put(data_, 6, other_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);

  begin();
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  put(data_, 6, other_);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(StandinCapture, WhatIsForbiddenSpoilsIt) {
  int plain = 0;
  void* memory = nullptr;
  ASSERT_EQ(cudaEventRecord(joined_, other_), cudaSuccess);
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  expect_spoils([&] { return cudaStreamSynchronize(stream_); }, unsupported);
  expect_spoils([&] { return cudaStreamQuery(stream_); }, unsupported);
  expect_spoils([&] { return cudaDeviceSynchronize(); }, unsupported);
  expect_spoils([&] { return cudaMalloc(&memory, 4); }, unsupported);
  expect_spoils([&] { return cudaHostAlloc(&memory, 4, cudaHostAllocDefault); }, unsupported);
  expect_spoils([&] { return cudaFree(data_); }, unsupported);
  expect_spoils([&] { return cudaFreeHost(pinned_); }, unsupported);
  expect_spoils([&] { return cudaMemcpy(data_, &plain, 4, cudaMemcpyHostToDevice); }, unsupported);
  expect_spoils([&] { return cudaMemcpyAsync(data_, &plain, 4, cudaMemcpyHostToDevice, stream_); },
                unsupported);
  expect_spoils([&] { return cudaMemcpyAsync(&plain, data_, 4, cudaMemcpyDeviceToHost, stream_); },
                unsupported);
  expect_spoils([&] { return cudaEventSynchronize(joined_); }, unsupported);
  expect_spoils([&] { return cudaStreamWaitEvent(stream_, joined_, 0); }, cudaErrorStreamCaptureIsolation);
  expect_spoils([&] { return cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed); },
                cudaErrorIllegalState);
  for (const auto wait : {cudaEventSynchronize, cudaEventQuery}) {
    expect_spoils(
        [&] {
          EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
          return wait(event_);
        },
        cudaErrorCapturedEvent);
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
}

TEST_F(StandinCapture, TwoCapturesDoNotMix) {
  begin();
  ASSERT_EQ(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(StandinCapture, OtherThreadsAreDisturbedInGlobalModeAlone) {
  const auto elsewhere = [&] {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 4);
      if (error == cudaSuccess) error = cudaFree(memory);
    }).join();
    return error;
  };
  cudaGraph_t graph = nullptr;
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(elsewhere(), cudaSuccess);
  cudaError_t ended = cudaSuccess;
  std::thread([&] { ended = cudaStreamEndCapture(stream_, &graph); }).join();
  EXPECT_EQ(ended, cudaErrorStreamCaptureWrongThread);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(StandinCapture, FaultsLeaveNothingBehind) {
  cudaGraph_t graph = nullptr;
  standin::inject("cudaStreamBeginCapture:1,cudaStreamEndCapture:1,cudaGraphInstantiate:1,cudaGraphLaunch:1");
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaErrorUnknown);
  begin();
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorUnknown);
  EXPECT_EQ(graph, nullptr);
  begin();
  put(data_, 8, stream_);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaErrorUnknown);
  EXPECT_EQ(value(), 0);
  standin::inject("kernel:1,cudaGraphDestroy:1,cudaGraphExecDestroy:1");
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress) << "kernels of a graph fail too";
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorUnknown);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaErrorUnknown);
}

using StandinCaptureDeathTest = StandinCapture;

TEST_F(StandinCaptureDeathTest, MisuseEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto* executable = recorded([&] { put(data_, 1, stream_); });
        cudaGraphLaunch(executable, stream_);
        cudaGraphExecDestroy(executable);
      },
      "still queued");
  EXPECT_DEATH(
      {
        auto* executable = recorded([&] { put(data_, 1, stream_); });
        cudaFree(data_);
        cudaGraphLaunch(executable, stream_);
      },
      "memory that the graph uses was freed");
  // A kernel's memory is known by its arguments.
  EXPECT_DEATH(
      {
        Arguments arguments;
        arguments.at = data_;
        auto* executable = recorded([&] {
          standin::enqueue_kernel(
              stream_, [] {}, &arguments, sizeof arguments);
        });
        cudaFree(data_);
        cudaGraphLaunch(executable, stream_);
      },
      "memory that the graph uses was freed");
  EXPECT_DEATH(
      {
        auto* executable = recorded([] {});
        cudaGraphExecDestroy(executable);
        cudaGraphExecDestroy(executable);
      },
      "not alive");
  EXPECT_DEATH(
      {
        begin();
        cudaStreamDestroy(stream_);
      },
      "captures");
  EXPECT_EXIT(
      {
        recorded([] {});
        std::exit(0);
      },
      testing::ExitedWithCode(99), "executable graph");
}

}  // namespace
