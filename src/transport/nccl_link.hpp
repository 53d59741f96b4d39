#pragma once
// One link between the GPUs of two ranks: a communicator of two, the stream that its operations run on, and
// the rules of a non-blocking communicator; inside src/transport/ only.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "transport/mpi.hpp"
#include "transport/nccl_handles.hpp"

namespace diffuse::nccl {

enum class Side : int { sender = 0, receiver = 1 };  // also the rank in the communicator

// Owns the communicator, the stream and the events. One thread uses it. Where a function throws, the owner
// aborts the link: then what waits on the device ends, and memory can be freed.
class Link {
 public:
  // References must outlive the link.
  Link(MpiTransport& host, Side side, int peer, std::string peer_name, std::chrono::nanoseconds peers_word);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Collective with the peer, over `id`, which one of the two has made.
  void connect(const ncclUniqueId& id);

  // Queues the transfer of `bytes` bytes of device memory behind what is queued on `compute`, and returns an
  // event that is reached when it is over.
  Event start(std::byte* data, std::size_t bytes, cudaStream_t compute, const std::string& purpose);

  // Whether the event is reached. Throws what has gone wrong on the link meanwhile.
  bool reached(const Event& event, const std::string& purpose);
  // Waits for that, with the deadline of the peer's signs of life; later work on `compute` waits too.
  void await(const Event& event, cudaStream_t compute, const std::string& purpose);

  void give_back(Event event) { idle_events_.push_back(std::move(event)); }

  // Collective with the peer: ends the communicator, in two steps so that a rank's links end side by side.
  void begin_close();
  void end_close();

  void abort();
  bool aborted() const { return comm_ == nullptr; }

 private:
  std::string doing(const std::string& purpose) const;
  void require(ncclResult_t result, const std::string& purpose);
  void require(cudaError_t result, const std::string& purpose);
  void await_ready(ncclResult_t result, const std::string& purpose);
  bool ready(const std::string& purpose);
  Event take_event();

  MpiTransport& host_;
  Side side_;
  int peer_;
  std::string peer_name_;
  std::chrono::nanoseconds peers_word_;
  Stream stream_;
  Event ready_;
  std::vector<Event> idle_events_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace diffuse::nccl
