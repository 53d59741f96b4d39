#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "mpi_test_main.hpp"
#include "transport/collectives.hpp"

namespace diffuse {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr Channel kAllChannels[] = {Channel::control, Channel::carry, Channel::result};

Bytes pattern(std::size_t size, int seed) {
  Bytes bytes(size);
  std::uint64_t state = static_cast<std::uint64_t>(seed) * 2654435761U + 1;
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

std::unique_ptr<Transport> transport(std::chrono::nanoseconds timeout = std::chrono::seconds(60)) {
  return make_mpi_transport(test_session(), {timeout});
}

TEST(MpiSession, KnowsItsRanks) {
  auto& session = test_session();
  const auto self = transport();
  EXPECT_EQ(session.hosts().size(), static_cast<std::size_t>(session.size()));
  EXPECT_FALSE(session.hosts()[0].empty());
  EXPECT_THAT(MpiSession::library_version(), testing::HasSubstr("MPI"));
}

TEST(MpiTransport, Collectives) {
  const auto self = transport();
  const auto mine = pattern(static_cast<std::size_t>(self->rank() * 1000), self->rank());
  const auto all = all_gather(*self, mine, "patterns");
  ASSERT_EQ(all.size(), static_cast<std::size_t>(self->size()));
  for (int rank = 0; rank < self->size(); ++rank)
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], pattern(static_cast<std::size_t>(rank * 1000), rank));
  EXPECT_EQ(all_gather(*self, std::string("x") + std::to_string(self->rank()), "texts").back(),
            "x" + std::to_string(self->size() - 1));
  const int root = self->size() - 1;
  EXPECT_EQ(broadcast(*self, self->rank() == root ? pattern(300000, 5) : Bytes{}, root, "a pattern"),
            pattern(300000, 5));
  EXPECT_TRUE(broadcast(*self, {}, 0, "nothing").empty());
  barrier(*self, "the end of the case");
}

TEST(MpiTransport, AllPairsAllSizes) {
  const auto self = transport();
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 65537UL, std::size_t{40} << 20}) {
    std::vector<Bytes> incoming(static_cast<std::size_t>(self->size()), Bytes(size));
    const auto outgoing = pattern(size, self->rank());
    std::vector<std::unique_ptr<Ticket>> tickets;
    for (int peer = 0; peer < self->size(); ++peer) {
      tickets.push_back(
          self->receive(peer, Channel::carry, incoming[static_cast<std::size_t>(peer)], {"rows"}));
      tickets.push_back(self->send(peer, Channel::carry, outgoing, {"rows"}));
    }
    for (auto& ticket : tickets) ticket->wait();
    for (int peer = 0; peer < self->size(); ++peer)
      EXPECT_TRUE(incoming[static_cast<std::size_t>(peer)] == pattern(size, peer))
          << size << " from " << peer;
  }
}

TEST(MpiTransport, ManyInFlightKeepTheirOrder) {
  const auto self = transport();
  constexpr int kMessages = 200;
  const auto size_of_message = [](int i) { return static_cast<std::size_t>(i * i * 3 % 20011); };
  std::vector<Bytes> buffers;
  std::vector<std::unique_ptr<Ticket>> tickets;
  const int next = (self->rank() + 1) % self->size();
  const int previous = (self->rank() + self->size() - 1) % self->size();
  buffers.reserve(kMessages * 3 * 2);
  for (const auto channel : kAllChannels)
    for (int i = 0; i < kMessages; ++i) {
      buffers.push_back(pattern(size_of_message(i), i + static_cast<int>(channel)));
      tickets.push_back(self->send(next, channel, buffers.back(), {"message " + std::to_string(i)}));
    }
  for (int i = 0; i < kMessages; ++i)
    for (const auto channel : kAllChannels) {
      buffers.emplace_back(size_of_message(i));
      const auto ticket = self->receive(previous, channel, buffers.back(), {"message " + std::to_string(i)});
      ticket->wait();
      ASSERT_TRUE(buffers.back() == pattern(size_of_message(i), i + static_cast<int>(channel)));
    }
  for (auto& ticket : tickets) ticket->wait();
}

TEST(MpiTransport, SendsOverlapWithComputing) {
  const auto self = transport();
  if (self->size() < 2) GTEST_SKIP() << "needs two ranks";
  constexpr std::size_t kSize = std::size_t{40} << 20;
  Bytes bytes(kSize);
  if (self->rank() == 0) {
    const auto ticket = self->send(1, Channel::carry, bytes, {"rows"});
    // Computes, without a call to the transport; then the message has gone.
    const auto end = std::chrono::steady_clock::now() + milliseconds(1500);
    while (std::chrono::steady_clock::now() < end) {
    }
    EXPECT_TRUE(ticket->done());
  } else if (self->rank() == 1) {
    self->receive_now(0, Channel::carry, bytes, {"rows"});
  }
}

TEST(MpiTransport, DoneBecomesTrueWithoutWaiting) {
  const auto self = transport();
  Bytes in(100);
  const auto out = pattern(100, self->rank());
  const auto receive = self->receive(self->rank(), Channel::result, in, {"own"});
  const auto send = self->send(self->rank(), Channel::result, out, {"own"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!(receive->done() && send->done()) && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_TRUE(receive->done());
  EXPECT_TRUE(in == out);
}

TEST(MpiTransport, ASlowRankDoesNotTimeOutNorDoesAChainBehindIt) {
  const auto self = transport(milliseconds(300));
  Bytes bytes(8);
  const int last = self->size() - 1;
  if (self->rank() == last)
    std::this_thread::sleep_for(milliseconds(1500));
  else
    self->receive_now(self->rank() + 1, Channel::carry, bytes, {"rows"});
  if (self->rank() > 0) self->send_now(self->rank() - 1, Channel::carry, bytes, {"rows"});
  if (self->rank() < last) {
    EXPECT_GT(self->waited(Channel::carry), milliseconds(1000));
  }
  EXPECT_EQ(self->bytes_sent(), self->rank() > 0 ? 8U : 0U);
}

TEST(MpiTransport, RefusesRanksThatThereAreNot) {
  const auto self = transport();
  Bytes bytes(4);
  EXPECT_THROW(self->send(self->size(), Channel::carry, bytes, {}), Error);
  EXPECT_THROW(self->receive(-1, Channel::carry, bytes, {}), Error);
}

TEST(MpiTransport, ComesAndGoesManyTimes) {
  for (int i = 0; i < 20; ++i) {
    const auto self = transport();
    Bytes bytes(16);
    const auto receive =
        self->receive((self->rank() + 1) % self->size(), Channel::control, bytes, {"a ring"});
    const auto send =
        self->send((self->rank() + self->size() - 1) % self->size(), Channel::control, bytes, {"a ring"});
    receive->wait();
    send->wait();
  }
}

}  // namespace
}  // namespace diffuse
