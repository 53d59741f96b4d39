#include "transport/collectives.hpp"

#include <cstdint>
#include <cstring>
#include <memory>

#include "core/error.hpp"

namespace diffuse {

namespace {

using Bytes = std::vector<std::byte>;

constexpr auto kChannel = Channel::meeting;

// The size goes first, for the receiver has to know it.
void send(Transport& transport, int peer, std::span<const std::byte> bytes, const std::string& doing) {
  const std::uint64_t size = bytes.size();
  transport.send_now(peer, kChannel, std::as_bytes(std::span(&size, 1)), {doing});
  transport.send_now(peer, kChannel, bytes, {doing});
}

Bytes receive(Transport& transport, int peer, const std::string& doing) {
  std::uint64_t size = 0;
  transport.receive_now(peer, kChannel, std::as_writable_bytes(std::span(&size, 1)), {doing});
  Bytes bytes(size);
  transport.receive_now(peer, kChannel, bytes, {doing});
  return bytes;
}

// From the root to all others.
void spread(Transport& transport, Bytes& bytes, int root, const std::string& doing) {
  if (transport.rank() != root) {
    bytes = receive(transport, root, doing);
    return;
  }
  for (int peer = 0; peer < transport.size(); ++peer)
    if (peer != root) send(transport, peer, bytes, doing);
}

void append(Bytes& all, std::span<const std::byte> part) {
  const std::uint64_t size = part.size();
  const auto head = std::as_bytes(std::span(&size, 1));
  all.insert(all.end(), head.begin(), head.end());
  all.insert(all.end(), part.begin(), part.end());
}

std::vector<Bytes> cut(std::span<const std::byte> all, const std::string& doing) {
  std::vector<Bytes> parts;
  while (!all.empty()) {
    std::uint64_t size = 0;
    if (all.size() < sizeof size) throw_internal(doing + ": it does not add up");
    std::memcpy(&size, all.data(), sizeof size);
    all = all.subspan(sizeof size);
    if (all.size() < size) throw_internal(doing + ": it does not add up");
    parts.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
    all = all.subspan(size);
  }
  return parts;
}

}  // namespace

std::vector<Bytes> all_gather(Transport& transport, std::span<const std::byte> mine,
                              const std::string& what) {
  const auto doing = "gathering " + what;
  Bytes all;
  if (transport.rank() == 0) {
    append(all, mine);
    for (int peer = 1; peer < transport.size(); ++peer) append(all, receive(transport, peer, doing));
  } else {
    send(transport, 0, mine, doing);
  }
  spread(transport, all, 0, doing);
  return cut(all, doing);
}

std::vector<std::string> all_gather(Transport& transport, const std::string& mine, const std::string& what) {
  std::vector<std::string> texts;
  for (const auto& part : all_gather(transport, std::as_bytes(std::span(mine)), what))
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return texts;
}

Bytes broadcast(Transport& transport, std::span<const std::byte> mine, int root, const std::string& what) {
  if (root < 0 || root >= transport.size()) throw_internal("a broadcast from a rank that there is not");
  Bytes bytes(mine.begin(), mine.end());
  spread(transport, bytes, root, "spreading " + what);
  return bytes;
}

void barrier(Transport& transport, const std::string& what) {
  const auto doing = "meeting for " + what;
  Bytes nothing;
  if (transport.rank() == 0) {
    for (int peer = 1; peer < transport.size(); ++peer) receive(transport, peer, doing);
  } else {
    send(transport, 0, nothing, doing);
  }
  spread(transport, nothing, 0, doing);
}

}  // namespace diffuse
