#pragma once
// What is under way between this rank and its peers over MPI; inside src/transport/ only.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace diffuse {

// A heartbeat, as it travels.
struct Beat {
  enum class Kind : std::int32_t { alive, good_bye } kind = Kind::alive;
  std::int32_t waits_for = -1;
  std::int64_t waits_nanoseconds = 0;
};

struct Operation {
  bool send = false;
  int peer = 0;
  Channel channel = Channel::control;
  std::byte* data = nullptr;  // only read in a send
  std::size_t bytes = 0;
  std::string purpose;
  std::size_t pieces = 0;  // under way
  std::atomic<bool> ended{false};
};
using OperationPtr = std::shared_ptr<Operation>;

// A piece of an operation, as MPI knows it.
struct Piece {
  OperationPtr operation;
  std::size_t bytes = 0;
};

}  // namespace diffuse
