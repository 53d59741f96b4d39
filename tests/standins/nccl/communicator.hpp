#pragma once
// Inside of the stand-in NCCL: a communicator of two ranks, and the thread that moves what its users queued.
//
// Locks: the runtime's is taken before a communicator's, never after it. So whoever holds the latter calls
// nothing of the runtime.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "socket.hpp"

namespace standin::nccl {

using Clock = std::chrono::steady_clock;

struct Operation {
  bool send = false;
  void* data = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  bool announced = false;  // told the peer that the stream has come here
  bool over = false;

  std::size_t bytes() const;
  std::string describe(int rank) const;  // "send of 4 x uint8 to rank 1"
};

// What one group queued on one stream: runs as one, all operations at the same time.
struct Group {
  std::vector<Operation> operations;
  cudaStream_t stream = nullptr;
  bool reached = false;
  Clock::time_point since{};  // when it was reached
  bool reported = false;      // by the watchdog
};

// A number from the environment: what a test says of the library's behaviour.
int setting(const char* name, int otherwise);

}  // namespace standin::nccl

struct ncclComm : std::enable_shared_from_this<ncclComm> {
 public:
  ncclComm(const std::string& id, int rank, int device);

  // The user's thread. Each returns what the function of the interface is to return.
  ncclResult_t ready_for_call();
  ncclResult_t queue(std::vector<standin::nccl::Operation> operations, cudaStream_t stream);
  ncclResult_t finalize();
  ncclResult_t async_error(ncclResult_t* state);
  void fail(ncclResult_t error, const std::string& text);
  // Gives up what is queued; the peer sees that this rank is gone.
  void abort();
  bool idle();
  std::thread::id owner() const { return owner_; }
  std::string last_error();

  // The library's thread.
  void pump();
  void drive();
  void watch();
  int descriptor();
  bool has_output();

 private:
  enum class Awaited { nothing, hello, connect, bye };

  // The mutex is held in all of these.
  void pump_locked();
  void take_messages();
  void take_hello(const std::string& theirs);
  void fail_locked(ncclResult_t error, const std::string& text);
  bool still_awaited() const;
  bool poll_group(standin::nccl::Group& group);
  void advance(standin::nccl::Operation& operation);
  bool agrees(const standin::nccl::Operation& operation, const standin::nccl::Header& theirs);
  void begin_async(Awaited awaited);

  ncclResult_t launch(const std::shared_ptr<standin::nccl::Group>& group);

  const int rank_;
  const int device_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::string identity_;  // host and device

  std::mutex mutex_;
  std::optional<standin::nccl::Socket> socket_;
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
  int answers_in_progress_ = 0;  // that async_error gives before anything else
  Awaited awaited_ = Awaited::nothing;
  bool heard_hello_ = false;
  bool heard_connect_ = false;
  bool heard_bye_ = false;
  bool said_connect_ = false;
  bool finalized_ = false;
  bool given_up_ = false;
  std::shared_ptr<standin::nccl::Group> to_launch_;
  std::vector<std::shared_ptr<standin::nccl::Group>> groups_;  // launched, not over
  std::deque<standin::nccl::Header> their_sends_;
  std::deque<standin::nccl::Header> their_receives_;
  std::deque<std::vector<char>> their_data_;
};
