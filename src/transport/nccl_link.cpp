#include "transport/nccl_link.hpp"

#include <thread>

namespace diffuse::nccl {

namespace {

// Blocks of the GPU that one transfer may take: it holds them while it waits for the peer, and they are the
// kernels' loss. Four move a step's rows at the speed of a link between machines, and of most within one.
constexpr int kMostBlocks = 4;

}  // namespace

Link::Link(MpiTransport& host, Side side, int peer, std::string peer_name,
           std::chrono::nanoseconds peers_word)
    : host_(host),
      side_(side),
      peer_(peer),
      peer_name_(std::move(peer_name)),
      peers_word_(peers_word),
      stream_(make_stream()),
      ready_(make_event()) {}

void Link::connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMostBlocks;
  await_ready(ncclCommInitRankConfig(&comm_, 2, id, static_cast<int>(side_), &config),
              "the link between the GPUs");
}

Link::~Link() {
  abort();
}

void Link::abort() {
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

std::string Link::doing(const std::string& purpose) const {
  return (side_ == Side::sender ? "sending to " : "receiving from ") + peer_name_ + ": " + purpose;
}

void Link::require(cudaError_t result, const std::string& purpose) {
  if (result != cudaSuccess) check(result, doing(purpose));
}

void Link::require(ncclResult_t result, const std::string& purpose) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string what = "NCCL failed while " + doing(purpose) + ": " + ncclGetErrorString(result);
  const char* more = ncclGetLastError(comm_);
  if (more != nullptr && *more != '\0') what += std::string(" (") + more + ")";
  if (result == ncclRemoteError) std::this_thread::sleep_for(peers_word_);
  throw_io(what + "; NCCL_DEBUG=INFO says more");
}

// What NCCL still does behind the last call on the communicator.
bool Link::ready(const std::string& purpose) {
  ncclResult_t state = ncclSuccess;
  require(ncclCommGetAsyncError(comm_, &state), purpose);
  require(state, purpose);
  return state == ncclSuccess;
}

// No call may follow one that is still in progress, but for questions about it and the abort.
void Link::await_ready(ncclResult_t result, const std::string& purpose) {
  require(result, purpose);
  host_.wait_until([&] { return ready(purpose); }, peer_, Channel::carry, {purpose});
}

Event Link::take_event() {
  if (idle_events_.empty()) return make_event();
  auto event = std::move(idle_events_.back());
  idle_events_.pop_back();
  return event;
}

Event Link::start(std::byte* data, std::size_t bytes, cudaStream_t compute, const std::string& purpose) {
  if (aborted()) throw_io("the link was given up before " + doing(purpose));
  auto event = take_event();
  require(cudaEventRecord(ready_.get(), compute), purpose);
  require(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0), purpose);
  require(ncclGroupStart(), purpose);
  const int other = 1 - static_cast<int>(side_);
  const auto queued = side_ == Side::sender ? ncclSend(data, bytes, ncclUint8, other, comm_, stream_.get())
                                            : ncclRecv(data, bytes, ncclUint8, other, comm_, stream_.get());
  // A group that is open would hold back the abort too.
  const auto grouped = ncclGroupEnd();
  require(queued, purpose);
  await_ready(grouped, purpose);
  // Only now the transfer stands on the stream: NCCL queues it from a thread of its own.
  require(cudaEventRecord(event.get(), stream_.get()), purpose);
  return event;
}

bool Link::reached(const Event& event, const std::string& purpose) {
  if (aborted()) throw_io("the link was given up while " + doing(purpose));
  const auto state = cudaEventQuery(event.get());
  if (state == cudaSuccess) return true;
  // "Not ready" is an error to the runtime, which the next look at a launch would be told.
  static_cast<void>(cudaGetLastError());
  if (state != cudaErrorNotReady) require(state, purpose);
  ready(purpose);
  return false;
}

void Link::await(const Event& event, cudaStream_t compute, const std::string& purpose) {
  host_.wait_until([&] { return reached(event, purpose); }, peer_, Channel::carry, {purpose});
  require(cudaStreamWaitEvent(compute, event.get(), 0), purpose);
}

void Link::begin_close() {
  if (aborted()) throw_io("the link to " + peer_name_ + " was given up before its end");
  require(ncclCommFinalize(comm_), "the end of the link");
}

void Link::end_close() {
  const std::string purpose = "the end of the link";
  await_ready(ncclInProgress, purpose);
  check(ncclCommDestroy(std::exchange(comm_, nullptr)), doing(purpose));
  for (auto& event : idle_events_) event.destroy(doing(purpose));
  ready_.destroy(doing(purpose));
  stream_.destroy(doing(purpose));
}

}  // namespace diffuse::nccl
