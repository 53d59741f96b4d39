// The interface of the stand-in NCCL: its rules, and the thread that moves what was queued. As in the real
// library, operations go on while their user does something else. Data goes over Unix sockets: MPI belongs to
// one thread of a rank, and it is another one that calls NCCL.
//
// DIFFUSE_STANDIN_NCCL_POLLS        how often each call is "in progress" before it is over (2)
// DIFFUSE_STANDIN_NCCL_VERSION      what ncclGetVersion says (22809); ranks share a device from 23000 on,
// with
//                                   NCCL_MULTI_RANK_GPU_ENABLE=1
// DIFFUSE_STANDIN_NCCL_PATIENCE     seconds after which a wait is told of on stderr (60; a circle after 2)
// DIFFUSE_STANDIN_NCCL_ABORT_HANGS  1: ncclCommAbort does not return
//
// Faults (standin_faults.hpp) by the functions' names; "ncclAsyncError" is an error that comes up by itself,
// and is told by ncclCommGetAsyncError.

#include <nccl.h>
#include <poll.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>

#include "communicator.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace standin::nccl {
namespace {

constexpr auto kLook = std::chrono::microseconds(500);
constexpr char kObject[] = "ncclComm";

// Owns the communicators, and the thread while there are any.
class Library {
 public:
  static Library& get() {
    static auto* instance = new Library;
    return *instance;
  }

  void add(const std::shared_ptr<ncclComm>& comm) {
    const std::lock_guard lock(mutex_);
    comms_[comm.get()] = comm;
    if (!thread_.joinable()) {
      stop_ = false;
      thread_ = std::thread([this] { work(); });
    }
  }

  void remove(ncclComm* comm) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      comms_.erase(comm);
      if (comms_.empty()) {
        stop_ = true;
        ended.swap(thread_);
      }
    }
    if (ended.joinable()) ended.join();
  }

  std::shared_ptr<ncclComm> find(ncclComm* comm) {
    const std::lock_guard lock(mutex_);
    const auto found = comms_.find(comm);
    return found == comms_.end() ? nullptr : found->second;
  }

 private:
  std::vector<std::shared_ptr<ncclComm>> comms() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<ncclComm>> all;
    for (const auto& [raw, comm] : comms_) all.push_back(comm);
    return all;
  }

  void work() {
    while (!stop_) {
      const auto all = comms();
      std::vector<pollfd> sockets;
      for (const auto& comm : all) {
        comm->pump();
        comm->drive();
        comm->watch();
        if (const int fd = comm->descriptor(); fd >= 0) {
          const auto events = static_cast<short>(comm->has_output() ? POLLIN | POLLOUT : POLLIN);
          sockets.push_back({fd, events, 0});
        }
      }
      const timespec pause{0, std::chrono::nanoseconds(kLook).count()};
      ppoll(sockets.data(), sockets.size(), &pause, nullptr);
    }
  }

  std::mutex mutex_;
  std::map<ncclComm*, std::shared_ptr<ncclComm>> comms_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct OpenGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  struct Part {
    std::shared_ptr<ncclComm> comm;
    cudaStream_t stream = nullptr;
    std::vector<Operation> operations;
  };
  std::vector<Part> parts;
};
thread_local OpenGroup group;
thread_local std::string last_error;

std::optional<ncclResult_t> fault(const char* function, ncclResult_t code = ncclInternalError) {
  const auto injected_code = injected(function, code);
  if (!injected_code) return {};
  last_error = std::string("a fault injected into ") + function;
  return static_cast<ncclResult_t>(*injected_code);
}

// A real library would read freed memory here, or race.
std::shared_ptr<ncclComm> checked(ncclComm_t comm, const char* function) {
  auto found = Library::get().find(comm);
  if (!found) violation(std::string(function) + ": the communicator is not alive");
  if (found->owner() != std::this_thread::get_id())
    violation(std::string(function) + ": a communicator was used from two threads");
  return found;
}

ncclResult_t refuse(ncclResult_t code, const std::string& text) {
  last_error = text;
  return code;
}

ncclResult_t kept(const std::shared_ptr<ncclComm>& comm, ncclResult_t code) {
  if (code != ncclSuccess && code != ncclInProgress) last_error = comm->last_error();
  return code;
}

ncclResult_t start_group() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const auto ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  auto result = ncclSuccess;
  for (const auto& part : ended.parts)
    result = kept(part.comm, part.comm->queue(part.operations, part.stream));
  return result;
}

ncclResult_t add(const std::shared_ptr<ncclComm>& comm, const Operation& operation, int peer, int ranks,
                 cudaStream_t stream) {
  if (const auto ready = comm->ready_for_call(); ready != ncclSuccess) return kept(comm, ready);
  if (peer < 0 || peer >= ranks) return refuse(ncclInvalidArgument, "there is no such peer");
  if (operation.type >= ncclNumTypes || (operation.count > 0 && operation.bytes() == 0))
    return refuse(ncclInvalidArgument, "there is no such type");
  for (auto& part : group.parts) {
    if (part.comm != comm) continue;
    if (part.stream != stream) return refuse(ncclInvalidUsage, "two streams in one group");
    part.operations.push_back(operation);
    return ncclSuccess;
  }
  group.parts.push_back({comm, stream, {operation}});
  return ncclSuccess;
}

ncclResult_t operate(const char* function, ncclComm_t raw, const Operation& operation, int peer,
                     cudaStream_t stream) {
  const auto comm = checked(raw, function);
  auto result = ncclSuccess;
  start_group();
  if (const auto injected_code = fault(function)) {
    result = *injected_code;
  } else {
    result = add(comm, operation, peer, 2, stream);
  }
  if (result != ncclSuccess) group.error = result;
  const auto ended = end_group();
  return result != ncclSuccess ? result : ended;
}

std::string random_id() {
  std::random_device random;
  std::string id = "diffuse-standin-nccl-";
  for (int i = 0; i < 4; ++i) id += std::to_string(random()) + ".";
  return id;
}

ncclResult_t init(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t& config) {
  if (ranks != 2) return refuse(ncclInvalidArgument, "the stand-in knows communicators of two ranks alone");
  if (rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "there is no such rank");
  if (config.size != sizeof config || config.magic != 0xcafebeef)
    return refuse(ncclInvalidArgument, "the config was not initialised");
  if (config.blocking != 0)
    return refuse(ncclInvalidArgument, "the stand-in knows non-blocking communicators alone");
  if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs < 1)
    return refuse(ncclInvalidArgument, "maxCTAs is too small");
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  if (!name.starts_with("diffuse-standin-nccl-"))
    return refuse(ncclInvalidArgument, "an id that ncclGetUniqueId has not made");
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "asking for the current device");
  try {
    const auto made = std::make_shared<ncclComm>(name, rank, device);
    register_object(made.get(), kObject);
    Library::get().add(made);
    *comm = made.get();
  } catch (const std::runtime_error& problem) {
    return refuse(ncclSystemError, problem.what());
  }
  return ncclInProgress;
}

void release(const std::shared_ptr<ncclComm>& comm) {
  comm->abort();
  Library::get().remove(comm.get());
  forget_object(comm.get(), kObject);
}

}  // namespace
}  // namespace standin::nccl

using standin::nccl::checked;
using standin::nccl::fault;
using standin::nccl::kept;
using standin::nccl::Operation;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (const auto code = fault("ncclGetVersion")) return *code;
  *version = standin::nccl::setting("DIFFUSE_STANDIN_NCCL_VERSION", NCCL_VERSION_CODE);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto code = fault("ncclGetUniqueId", ncclSystemError)) return *code;
  *id = {};
  const auto text = standin::nccl::random_id();
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  if (const auto code = fault("ncclCommInitRankConfig", ncclSystemError)) return *code;
  return standin::nccl::init(comm, ranks, id, rank, *config);
}

ncclResult_t ncclCommFinalize(ncclComm_t raw) {
  const auto comm = checked(raw, "ncclCommFinalize");
  if (const auto code = fault("ncclCommFinalize")) return *code;
  if (const auto ready = comm->ready_for_call(); ready != ncclSuccess) return kept(comm, ready);
  return kept(comm, comm->finalize());
}

ncclResult_t ncclCommDestroy(ncclComm_t raw) {
  const auto comm = checked(raw, "ncclCommDestroy");
  const auto code = fault("ncclCommDestroy");
  if (!code) {
    if (const auto ready = comm->ready_for_call(); ready != ncclSuccess) return kept(comm, ready);
  }
  if (!comm->idle())
    standin::violation("ncclCommDestroy: operations are under way, and it would wait for them");
  standin::nccl::release(comm);
  return code.value_or(ncclSuccess);
}

ncclResult_t ncclCommAbort(ncclComm_t raw) {
  const auto comm = checked(raw, "ncclCommAbort");
  const auto code = fault("ncclCommAbort");
  if (standin::nccl::group.depth > 0)
    standin::violation("ncclCommAbort inside a group is put off until its end");
  // As a library does now and then whose device is in trouble.
  while (standin::nccl::setting("DIFFUSE_STANDIN_NCCL_ABORT_HANGS", 0) != 0)
    std::this_thread::sleep_for(std::chrono::seconds(1));
  standin::nccl::release(comm);
  return code.value_or(ncclSuccess);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return standin::nccl::last_error.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t raw, ncclResult_t* state) {
  const auto comm = checked(raw, "ncclCommGetAsyncError");
  if (const auto code = fault("ncclCommGetAsyncError")) return *code;
  // An error that comes from the peer, not of this call.
  if (const auto code = fault("ncclAsyncError", ncclRemoteError)) comm->fail(*code, "injected");
  const auto result = comm->async_error(state);
  kept(comm, *state);
  return result;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  // One type of operation serves both directions; a send only reads.
  const Operation send{.send = true,
                       .data = const_cast<void*>(data),
                       .count = count,
                       .type = type,
                       .announced = false,
                       .over = false};
  return standin::nccl::operate("ncclSend", comm, send, peer, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Operation receive{
      .send = false, .data = data, .count = count, .type = type, .announced = false, .over = false};
  return standin::nccl::operate("ncclRecv", comm, receive, peer, stream);
}

ncclResult_t ncclGroupStart(void) {
  if (const auto code = fault("ncclGroupStart")) return *code;
  return standin::nccl::start_group();
}

ncclResult_t ncclGroupEnd(void) {
  const auto code = fault("ncclGroupEnd");
  if (code) standin::nccl::group.error = *code;
  const auto ended = standin::nccl::end_group();
  return code.value_or(ended);
}

}  // extern "C"
