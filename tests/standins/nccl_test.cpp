// The stand-in NCCL keeps NCCL's rules. The two ranks of a communicator are two threads here.

#include <gmock/gmock.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One rank: a device, a stream, a communicator, some floats on the device.
class Rank {
 public:
  Rank(int rank, int device, const ncclUniqueId& id) : rank_(rank) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, kFloats * sizeof(float)), cudaSuccess);
    data = static_cast<float*>(memory);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
  }
  ~Rank() {
    if (comm != nullptr) ncclCommAbort(comm);
    cudaStreamDestroy(stream);
    cudaFree(data);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // What the communicator says when it is no longer in progress; ncclInProgress after too long a time.
  ncclResult_t settle(seconds patience = seconds(20)) const {
    const auto end = std::chrono::steady_clock::now() + patience;
    auto state = ncclInProgress;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return state;
  }

  void put(float value) const {
    standin_enqueue(stream, [to = data, value] {
      for (int i = 0; i < kFloats; ++i) to[i] = value + static_cast<float>(i);
    });
  }
  // Waits for the stream.
  std::vector<float> get() const {
    std::vector<float> values(kFloats);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data, kFloats * sizeof(float), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return values;
  }
  ncclResult_t send(std::size_t count = kFloats, ncclDataType_t type = ncclFloat32) const {
    return ncclSend(data, count, type, 1 - rank_, comm, stream);
  }
  ncclResult_t receive(std::size_t count = kFloats, ncclDataType_t type = ncclFloat32) const {
    return ncclRecv(data, count, type, 1 - rank_, comm, stream);
  }
  // The whole way of a transfer, up to its place on the stream.
  ncclResult_t transfer() const {
    EXPECT_EQ(rank_ == 0 ? send() : receive(), ncclInProgress);
    return settle();
  }
  void end() {
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    EXPECT_EQ(settle(), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    comm = nullptr;
  }

  static constexpr int kFloats = 100000;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  float* data = nullptr;

 private:
  int rank_;
};

class StandinNccl : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DIFFUSE_STANDIN_DEVICES", "2", 1); }
  void SetUp() override {
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    unsetenv("DIFFUSE_STANDIN_NCCL_VERSION");
    setenv("DIFFUSE_STANDIN_NCCL_POLLS", "2", 1);
    standin::inject("");
  }
  void TearDown() override { EXPECT_EQ(standin::live_objects(), 0U); }

  // Both ranks do the same, each on a device of its own where `devices` does not say otherwise.
  static void both(const std::function<void(Rank&, int)>& body, std::array<int, 2> devices = {0, 1}) {
    ncclUniqueId id = {};
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    const auto run = [&](int rank) {
      Rank self(rank, devices.at(static_cast<std::size_t>(rank)), id);
      body(self, rank);
    };
    std::thread second(run, 1);
    run(0);
    second.join();
  }
};
using StandinNcclDeathTest = StandinNccl;

TEST_F(StandinNccl, MovesDataInTheOrderOfItsStreams) {
  both([](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    for (int i = 0; i < 5; ++i) {
      if (rank == 0) self.put(static_cast<float>(i));
      ASSERT_EQ(self.transfer(), ncclSuccess);
      const auto seen = self.get();
      EXPECT_EQ(seen[0], static_cast<float>(i));
      EXPECT_EQ(seen.back(), static_cast<float>(i) + Rank::kFloats - 1);
    }
    self.end();
  });
}

TEST_F(StandinNccl, GoesOnWhileItsUserDoesSomethingElse) {
  both([](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    if (rank == 0) self.put(3);
    ASSERT_EQ(self.transfer(), ncclSuccess);
    // Nothing waits for the stream of rank 0.
    if (rank == 0) std::this_thread::sleep_for(milliseconds(300));
    if (rank == 1) {
      EXPECT_EQ(self.get()[0], 3);
    }
    self.end();
  });
}

TEST_F(StandinNccl, ATransferIsOverOnlyWhenThePeerHasComeToIt) {
  both([](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    ASSERT_EQ(self.transfer(), ncclSuccess);  // connects the two
    self.get();
    if (rank == 1) std::this_thread::sleep_for(milliseconds(400));
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(self.transfer(), ncclSuccess);
    self.get();
    if (rank == 0) {
      EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(300));
    }
    self.end();
  });
}

TEST_F(StandinNccl, AnOperationStandsOnTheStreamOnlyWhenItIsNoLongerInProgress) {
  both([](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    ASSERT_EQ(rank == 0 ? self.send() : self.receive(), ncclInProgress);
    if (rank == 0) {
      EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess) << "nothing is there yet";
    }
    EXPECT_EQ(self.settle(), ncclSuccess);
    self.get();
    self.end();
  });
}

TEST_F(StandinNccl, SaysInProgressAsOftenAsATestWantsIt) {
  setenv("DIFFUSE_STANDIN_NCCL_POLLS", "7", 1);
  both([](Rank& self, int) {
    auto state = ncclSuccess;
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(ncclCommGetAsyncError(self.comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_EQ(self.settle(), ncclSuccess);
    self.end();
  });
}

TEST_F(StandinNccl, NoCallWhileOneIsInProgress) {
  std::barrier both_done(2);
  both([&](Rank& self, int) {
    EXPECT_EQ(self.send(), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(self.comm), testing::HasSubstr("ncclInProgress"));
    EXPECT_EQ(ncclCommFinalize(self.comm), ncclInvalidArgument);
    both_done.arrive_and_wait();
  });
}

TEST_F(StandinNccl, CountsAndTypesMustAgree) {
  for (const bool types : {false, true}) {
    both([types](Rank& self, int rank) {
      ASSERT_EQ(self.settle(), ncclSuccess);
      const auto queued = rank == 0 ? self.send(16) : types ? self.receive(16, ncclInt32) : self.receive(12);
      ASSERT_EQ(queued, ncclInProgress);
      self.settle();
      standin::drive(self.stream);
      // The one that finds out may be gone before the other looks.
      auto state = ncclSuccess;
      for (int i = 0; i < 2000 && state == ncclSuccess; ++i) {
        ncclCommGetAsyncError(self.comm, &state);
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_TRUE(state == ncclInvalidUsage || state == ncclRemoteError) << state;
      if (state == ncclInvalidUsage) {
        EXPECT_THAT(ncclGetLastError(self.comm), testing::HasSubstr("16 x float32"));
        EXPECT_THAT(ncclGetLastError(self.comm), testing::HasSubstr(types ? "16 x int32" : "12 x float32"));
      }
    });
  }
}

TEST_F(StandinNccl, ACircleOutsideAGroupHangsAndIsNamed) {
  testing::internal::CaptureStderr();
  both([](Rank& self, int) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    for (const bool sends : {true, false}) {
      ASSERT_EQ(sends ? self.send() : self.receive(), ncclInProgress);
      ASSERT_EQ(self.settle(), ncclSuccess);
    }
    std::this_thread::sleep_for(seconds(3));
    EXPECT_EQ(cudaStreamQuery(self.stream), cudaErrorNotReady);
  });
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              testing::HasSubstr("rank 0 of a communicator waits in its send of 100000 x float32 to rank 1, "
                                 "and rank 1 in its send of 100000 x float32 to rank 0: a circle"));
  EXPECT_THAT(said, testing::HasSubstr("rank 1 of a communicator waits in its send"));
}

TEST_F(StandinNccl, TheSameInAGroupPasses) {
  both([](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    self.put(static_cast<float>(rank));
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, sizeof(float)), cudaSuccess);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(self.data, 1, ncclFloat32, 1 - rank, self.comm, self.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(memory, 1, ncclFloat32, 1 - rank, self.comm, self.stream), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(self.settle(), ncclSuccess);
    float seen = -1;
    cudaMemcpyAsync(&seen, memory, sizeof seen, cudaMemcpyDeviceToHost, self.stream);
    EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
    EXPECT_EQ(seen, static_cast<float>(1 - rank));
    self.end();
    cudaFree(memory);
  });
}

TEST_F(StandinNccl, TwoRanksOnOneDevice) {
  const auto refused = [](Rank& self, int) {
    EXPECT_EQ(self.settle(), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(self.comm), testing::HasSubstr("Duplicate GPU detected"));
  };
  both(refused, {1, 1});
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  both(refused, {1, 1});  // too old a version
  setenv("DIFFUSE_STANDIN_NCCL_VERSION", "23000", 1);
  both(
      [](Rank& self, int) {
        EXPECT_EQ(self.settle(), ncclSuccess);
        self.end();
      },
      {1, 1});
}

TEST_F(StandinNccl, APeerThatIsGoneIsARemoteError) {
  // Rank 1 goes when rank 0 has its link.
  std::atomic<bool> linked{false};
  both([&](Rank& self, int rank) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    if (rank == 0) linked = true;
    for (int i = 0; i < 2000 && !linked; ++i) std::this_thread::sleep_for(milliseconds(1));
    if (rank == 1) return;
    auto state = ncclSuccess;
    for (int i = 0; i < 2000 && state == ncclSuccess; ++i) {
      ncclCommGetAsyncError(self.comm, &state);
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(state, ncclRemoteError);
  });
}

TEST_F(StandinNccl, InjectedErrors) {
  // Rank 1 stays until rank 0 has seen what it is to see.
  std::atomic<bool> seen{false};
  const auto on_rank_0 = [&](const std::function<void(Rank&)>& body) {
    seen = false;
    both([&](Rank& self, int rank) {
      if (rank == 0) body(self);
      if (rank == 0) seen = true;
      while (!seen) std::this_thread::sleep_for(milliseconds(1));
    });
  };
  standin::inject("ncclAsyncError:2");
  on_rank_0([](Rank& self) { EXPECT_EQ(self.settle(), ncclRemoteError); });
  EXPECT_TRUE(standin::fault_happened());
  standin::inject("ncclSend:1=2,ncclGroupStart:1");
  on_rank_0([](Rank& self) {
    ASSERT_EQ(self.settle(), ncclSuccess);
    EXPECT_EQ(self.send(), ncclSystemError);
    EXPECT_EQ(ncclGroupStart(), ncclInternalError);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "no group is open";
  });
}

TEST_F(StandinNccl, WrongUseOfAnIdOrOfArguments) {
  ncclUniqueId id = {};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidArgument) << "no id";
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 2, &config), ncclInvalidArgument) << "no such rank";
  std::barrier both_done(2);
  both([&](Rank& self, int rank) {
    EXPECT_EQ(self.settle(), ncclSuccess);
    EXPECT_EQ(ncclSend(self.data, 1, ncclFloat32, 5, self.comm, self.stream), ncclInvalidArgument);
    if (rank == 0) {
      EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
      ncclComm_t twin = nullptr;
      EXPECT_EQ(ncclCommInitRankConfig(&twin, 2, id, 0, &config), ncclSystemError) << "an id used twice";
      ncclCommAbort(comm);
    }
    both_done.arrive_and_wait();
  });
}

TEST_F(StandinNcclDeathTest, MisuseEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(both([](Rank& self, int) {
                 const auto comm = self.comm;
                 ncclCommAbort(std::exchange(self.comm, nullptr));
                 auto state = ncclSuccess;
                 ncclCommGetAsyncError(comm, &state);
               }),
               "not alive");
  EXPECT_DEATH(both([](Rank& self, int) {
                 std::thread([&] {
                   auto state = ncclSuccess;
                   ncclCommGetAsyncError(self.comm, &state);
                 }).join();
               }),
               "two threads");
  EXPECT_DEATH(both([](Rank& self, int) {
                 ncclGroupStart();
                 ncclCommAbort(std::exchange(self.comm, nullptr));
               }),
               "inside a group");
  EXPECT_DEATH(both([](Rank& self, int rank) {
                 self.settle();
                 std::vector<float> plain(4);
                 if (rank == 0) {
                   ncclSend(plain.data(), 4, ncclFloat32, 1, self.comm, self.stream);
                 } else {
                   self.receive(4);
                 }
                 self.settle();
                 std::this_thread::sleep_for(seconds(5));
               }),
               "not on a device");
}

}  // namespace
