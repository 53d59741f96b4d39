#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "standin_faults.hpp"
#include "standin_runtime.hpp"

using standin::nccl::Clock;
using standin::nccl::Group;
using standin::nccl::Header;
using standin::nccl::Kind;
using standin::nccl::Operation;
using standin::nccl::setting;

namespace standin::nccl {
namespace {

struct Type {
  const char* name;
  std::size_t bytes;
};

Type type_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return {"int8", 1};
    case ncclUint8:
      return {"uint8", 1};
    case ncclInt32:
      return {"int32", 4};
    case ncclUint32:
      return {"uint32", 4};
    case ncclInt64:
      return {"int64", 8};
    case ncclUint64:
      return {"uint64", 8};
    case ncclFloat16:
      return {"float16", 2};
    case ncclFloat32:
      return {"float32", 4};
    case ncclFloat64:
      return {"float64", 8};
    case ncclBfloat16:
      return {"bfloat16", 2};
    case ncclNumTypes:
      break;
  }
  return {"no type", 0};
}

std::string elements(std::uint64_t count, ncclDataType_t type) {
  return std::to_string(count) + " x " + type_of(type).name;
}

std::string name_of_device(int device) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return std::string(host) + " device " + std::to_string(standin::physical_device(device));
}

bool devices_may_be_shared() {
  constexpr int kFirstVersion = 23000;
  return setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 1 &&
         setting("DIFFUSE_STANDIN_NCCL_VERSION", NCCL_VERSION_CODE) >= kFirstVersion;
}

}  // namespace

std::size_t Operation::bytes() const {
  return count * type_of(type).bytes;
}

std::string Operation::describe(int rank) const {
  const auto peer = std::to_string(1 - rank);
  return (send ? "send of " : "receive of ") + elements(count, type) + (send ? " to rank " : " from rank ") +
         peer;
}

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace standin::nccl

ncclComm::ncclComm(const std::string& id, int rank, int device)
    : rank_(rank), device_(device), identity_(standin::nccl::name_of_device(device)) {
  socket_.emplace(id, rank == 0);
  socket_->post({.kind = Kind::hello, .type = 0, .count = 0, .bytes = identity_.size()}, identity_.data());
  begin_async(Awaited::hello);
}

void ncclComm::begin_async(Awaited awaited) {
  awaited_ = awaited;
  answers_in_progress_ = setting("DIFFUSE_STANDIN_NCCL_POLLS", 2);
}

void ncclComm::fail(ncclResult_t error, const std::string& text) {
  const std::lock_guard lock(mutex_);
  fail_locked(error, text);
}

void ncclComm::fail_locked(ncclResult_t error, const std::string& text) {
  if (error_ != ncclSuccess) return;
  error_ = error;
  error_text_ = text;
}

std::string ncclComm::last_error() {
  const std::lock_guard lock(mutex_);
  return error_text_;
}

ncclResult_t ncclComm::ready_for_call() {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return error_;
  if (awaited_ == Awaited::nothing && answers_in_progress_ == 0 && !to_launch_) return ncclSuccess;
  fail_locked(ncclInvalidArgument, "a call before the one in front of it was over (ncclInProgress)");
  return ncclInvalidArgument;
}

ncclResult_t ncclComm::queue(std::vector<Operation> operations, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (finalized_) {
    fail_locked(ncclInvalidUsage, "an operation behind ncclCommFinalize");
    return ncclInvalidUsage;
  }
  to_launch_ = std::make_shared<Group>(Group{std::move(operations), stream, false, {}, false});
  // The first transfer connects the two, and needs both for that.
  if (!said_connect_) socket_->post({.kind = Kind::connect, .type = 0, .count = 0, .bytes = 0}, nullptr);
  said_connect_ = true;
  begin_async(Awaited::connect);
  return ncclInProgress;
}

ncclResult_t ncclComm::finalize() {
  const std::lock_guard lock(mutex_);
  if (finalized_) {
    fail_locked(ncclInvalidArgument, "ncclCommFinalize a second time");
    return ncclInvalidArgument;
  }
  finalized_ = true;
  socket_->post({.kind = Kind::bye, .type = 0, .count = 0, .bytes = 0}, nullptr);
  begin_async(Awaited::bye);
  return ncclInProgress;
}

bool ncclComm::still_awaited() const {
  switch (awaited_) {
    case Awaited::nothing:
      return false;
    case Awaited::hello:
      return !heard_hello_;
    case Awaited::connect:
      return !heard_connect_;
    case Awaited::bye:
      return !heard_bye_ || !groups_.empty();
  }
  return false;
}

ncclResult_t ncclComm::async_error(ncclResult_t* state) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    pump_locked();
    if (error_ == ncclSuccess && answers_in_progress_ > 0) {
      --answers_in_progress_;
      *state = ncclInProgress;
      return ncclSuccess;
    }
    *state = error_ != ncclSuccess ? error_ : still_awaited() ? ncclInProgress : ncclSuccess;
    if (*state != ncclSuccess) return ncclSuccess;
    awaited_ = Awaited::nothing;
    group = std::move(to_launch_);
  }
  // NCCL queues from a thread of its own, behind the call: so what the caller queued on the stream before it
  // was told of the end stands in front.
  if (group) *state = launch(group);
  return ncclSuccess;
}

ncclResult_t ncclComm::launch(const std::shared_ptr<Group>& group) {
  std::vector<standin::Range> ranges;
  for (const auto& operation : group->operations) {
    if (operation.bytes() > 0) ranges.push_back({operation.data, operation.bytes()});
  }
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
  }
  const auto code = standin::enqueue_polled(
      group->stream,
      [self = shared_from_this(), group] {
        const std::lock_guard lock(self->mutex_);
        return self->poll_group(*group);
      },
      ranges);
  if (code == cudaSuccess) return ncclSuccess;
  fail(ncclUnhandledCudaError, std::string("queueing on a stream: ") + cudaGetErrorString(code));
  return ncclUnhandledCudaError;
}

bool ncclComm::poll_group(Group& group) {
  if (!group.reached) group.since = Clock::now();
  group.reached = true;
  pump_locked();
  bool over = true;
  for (auto& operation : group.operations) {
    if (error_ == ncclSuccess && !given_up_) advance(operation);
    over = over && operation.over;
  }
  // What was given up leaves the stream at once, and whatever is in the buffers.
  if (!over && !given_up_) return false;
  std::erase_if(groups_, [&](const auto& each) { return each.get() == &group; });
  return true;
}

void ncclComm::advance(Operation& operation) {
  if (operation.over) return;
  if (!operation.announced) {
    operation.announced = true;
    socket_->post({.kind = operation.send ? Kind::send : Kind::receive,
                   .type = static_cast<std::uint32_t>(operation.type),
                   .count = operation.count,
                   .bytes = 0},
                  nullptr);
    take_messages();
  }
  auto& theirs = operation.send ? their_receives_ : their_sends_;
  if (theirs.empty() || !agrees(operation, theirs.front())) return;
  if (operation.send) {
    socket_->post({.kind = Kind::data, .type = 0, .count = 0, .bytes = operation.bytes()}, operation.data);
  } else {
    if (their_data_.empty()) return;
    if (operation.bytes() > 0)
      std::memcpy(operation.data, their_data_.front().data(), their_data_.front().size());
    their_data_.pop_front();
  }
  theirs.pop_front();
  operation.over = true;
}

bool ncclComm::agrees(const Operation& operation, const Header& theirs) {
  if (theirs.count == operation.count && theirs.type == static_cast<std::uint32_t>(operation.type))
    return true;
  fail_locked(ncclInvalidUsage,
              "a " + operation.describe(rank_) + " meets one of " +
                  standin::nccl::elements(theirs.count, static_cast<ncclDataType_t>(theirs.type)));
  return false;
}

void ncclComm::pump() {
  const std::lock_guard lock(mutex_);
  pump_locked();
}

void ncclComm::pump_locked() {
  if (!socket_) return;
  socket_->pump();
  take_messages();
  if (socket_->closed() && !heard_bye_)
    fail_locked(ncclRemoteError, "the process of rank " + std::to_string(1 - rank_) + " is gone");
}

void ncclComm::take_messages() {
  auto& messages = socket_->incoming();
  for (; !messages.empty(); messages.pop_front()) {
    auto& message = messages.front();
    switch (message.header.kind) {
      case Kind::hello:
        take_hello({message.payload.begin(), message.payload.end()});
        break;
      case Kind::connect:
        heard_connect_ = true;
        break;
      case Kind::send:
        their_sends_.push_back(message.header);
        break;
      case Kind::receive:
        their_receives_.push_back(message.header);
        break;
      case Kind::data:
        their_data_.push_back(std::move(message.payload));
        break;
      case Kind::bye:
        heard_bye_ = true;
        break;
    }
  }
}

void ncclComm::take_hello(const std::string& theirs) {
  heard_hello_ = true;
  if (theirs == identity_ && !standin::nccl::devices_may_be_shared())
    fail_locked(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank_) + " and rank " +
                                      std::to_string(1 - rank_) + " both on " + identity_);
}

void ncclComm::abort() {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    socket_.reset();
  }
  // What was launched leaves its stream, behind what stands in front of it there.
  drive();
}

bool ncclComm::idle() {
  const std::lock_guard lock(mutex_);
  return groups_.empty() && !to_launch_;
}

void ncclComm::drive() {
  std::vector<cudaStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) {
      if (std::find(streams.begin(), streams.end(), group->stream) == streams.end())
        streams.push_back(group->stream);
    }
  }
  for (auto* stream : streams) standin::drive(stream);
}

// Both ranks stand before operations that the other's do not serve: neither will ever go on.
void ncclComm::watch() {
  constexpr auto kCircle = std::chrono::seconds(2);
  const auto patience = std::chrono::seconds(setting("DIFFUSE_STANDIN_NCCL_PATIENCE", 60));
  const std::lock_guard lock(mutex_);
  for (auto& group : groups_) {
    if (!group->reached || group->reported || error_ != ncclSuccess) continue;
    const auto waited = Clock::now() - group->since;
    const auto& waiting = *std::find_if(group->operations.begin(), group->operations.end(),
                                        [](const Operation& operation) { return !operation.over; });
    const bool same = waiting.send ? !their_sends_.empty() : !their_receives_.empty();
    const bool circle = same && (waiting.send ? their_receives_ : their_sends_).empty();
    if (waited < (circle ? kCircle : patience)) continue;
    group->reported = true;
    std::string text = "stand-in NCCL: rank " + std::to_string(rank_) + " of a communicator waits in its " +
                       waiting.describe(rank_);
    if (circle) {
      const auto& theirs = waiting.send ? their_sends_.front() : their_receives_.front();
      const Operation other{.send = waiting.send,
                            .data = nullptr,
                            .count = theirs.count,
                            .type = static_cast<ncclDataType_t>(theirs.type),
                            .announced = true,
                            .over = false};
      text += ", and rank " + std::to_string(1 - rank_) + " in its " + other.describe(1 - rank_) +
              ": a circle, for they are not in one group";
    } else {
      text += ", to which the stream of rank " + std::to_string(1 - rank_) + " has not come";
    }
    std::fprintf(stderr, "%s\n", text.c_str());
    std::fflush(stderr);
  }
}

int ncclComm::descriptor() {
  const std::lock_guard lock(mutex_);
  return socket_ ? socket_->descriptor() : -1;
}

bool ncclComm::has_output() {
  const std::lock_guard lock(mutex_);
  return socket_ && socket_->has_output();
}
