#pragma once
// The seam between the pipeline and the network: ordered byte streams between pairs of ranks, several
// channels each.
//
// NCCL shapes the contract: no tags and no any-source; the receiver knows the size before it receives;
// messages of one (sender, receiver, channel) arrive in the order they were sent. Every wait has a deadline,
// counted from the peer's last sign of life; when it passes, an Error (io) says which peer, request and layer
// was waited for.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace diffuse {

enum class Channel : std::uint8_t {
  control,  // step descriptors, rank 0 to all
  carry,    // hidden rows, stage to next stage
  result,   // sampled ids and reports, to rank 0
  memory,   // what was encoded, from a rank that encodes to every stage
  meeting,  // what all ranks exchange before and after the work (collectives.hpp)
};
inline constexpr int kChannels = 5;

// What a message is part of, for the message of a deadline: "layer 12 of request 'a7', step 301".
struct Purpose {
  std::string what;
};

// An operation under way. Dropping a ticket before it is done is a programming error except while unwinding.
class Ticket {
 public:
  virtual ~Ticket() = default;
  virtual bool done() = 0;  // never blocks; throws the error of a failed operation
  virtual void wait() = 0;  // blocks until done, or throws at the deadline
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // True where the bytes of the carry channel lie in the memory of the backend's device: sent when what was
  // queued there before the call has run, received before what is queued there after the ticket's wait().
  virtual bool carries_device_memory() const { return false; }

  // The bytes belong to the operation until its ticket is done. Sending to oneself is allowed. Progress needs
  // no further call from this thread: sends overlap with computing. One thread calls, except for abort.
  virtual std::unique_ptr<Ticket> send(int peer, Channel channel, std::span<const std::byte> bytes,
                                       Purpose purpose) = 0;
  virtual std::unique_ptr<Ticket> receive(int peer, Channel channel, std::span<std::byte> bytes,
                                          Purpose purpose) = 0;

  void send_now(int peer, Channel channel, std::span<const std::byte> bytes, Purpose purpose) {
    send(peer, channel, bytes, std::move(purpose))->wait();
  }
  void receive_now(int peer, Channel channel, std::span<std::byte> bytes, Purpose purpose) {
    receive(peer, channel, bytes, std::move(purpose))->wait();
  }

  // Seconds this rank's thread has spent in waits, a channel: the bubble of a report.
  virtual std::chrono::nanoseconds waited(Channel channel) const = 0;
  virtual std::uint64_t bytes_sent() const = 0;  // but for what goes over the meeting channel
};

}  // namespace diffuse
