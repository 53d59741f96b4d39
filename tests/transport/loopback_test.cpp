#include "transport/loopback.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "transport/collectives.hpp"

namespace diffuse {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed)) & 0xff);
  return bytes;
}

// Runs a body a rank, each in its thread; returns what each threw.
std::vector<std::string> run_ranks(LoopbackNetwork& network, int ranks,
                                   const std::function<void(Transport&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, transport = std::shared_ptr<Transport>(network.endpoint(rank))]() mutable {
      try {
        body(*transport);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
      transport.reset();
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

LoopbackOptions within(milliseconds timeout) {
  LoopbackOptions options;
  options.timeout = timeout;
  return options;
}

TEST(Loopback, AllPairsKeepOrderAChannel) {
  constexpr int kRanks = 4;
  LoopbackNetwork network(kRanks);
  const auto errors = run_ranks(network, kRanks, [](Transport& transport) {
    const Channel channels[] = {Channel::control, Channel::carry, Channel::result, Channel::memory,
                                Channel::meeting};
    std::vector<Bytes> buffers;
    std::vector<std::unique_ptr<Ticket>> tickets;
    buffers.reserve(2 * kChannels * 20 * kRanks);
    for (int peer = 0; peer < kRanks; ++peer)
      for (const auto channel : channels)
        for (int i = 0; i < 20; ++i) {
          const auto size = static_cast<std::size_t>(i * 37);
          buffers.push_back(pattern(size, transport.rank() + i));
          tickets.push_back(transport.send(peer, channel, buffers.back(), {"a message"}));
        }
    const auto sent = buffers.size();
    for (int peer = 0; peer < kRanks; ++peer)
      for (const auto channel : channels)
        for (int i = 0; i < 20; ++i) {
          buffers.emplace_back(static_cast<std::size_t>(i * 37));
          tickets.push_back(transport.receive(peer, channel, buffers.back(), {"a message"}));
        }
    for (auto& ticket : tickets) ticket->wait();
    auto received = buffers.begin() + static_cast<std::ptrdiff_t>(sent);
    for (int peer = 0; peer < kRanks; ++peer)
      for (std::size_t channel = 0; channel < kChannels; ++channel)
        for (int i = 0; i < 20; ++i, ++received)
          EXPECT_EQ(*received, pattern(static_cast<std::size_t>(i * 37), peer + i));
    EXPECT_EQ(transport.bytes_sent(), static_cast<std::uint64_t>(kRanks * (kChannels - 1) * 37 * 190));
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Loopback, ASendEndsOnlyWhenItIsReceived) {
  LoopbackNetwork network(1);
  const auto self = network.endpoint(0);
  const Bytes out = pattern(8, 1);
  Bytes in(8);
  const auto send = self->send(0, Channel::carry, out, {});
  EXPECT_FALSE(send->done());
  const auto receive = self->receive(0, Channel::carry, in, {});
  EXPECT_TRUE(send->done());
  EXPECT_TRUE(receive->done());
  EXPECT_EQ(in, out);
}

TEST(Loopback, SizesThatDifferAreAnErrorOfBothThatNamesBoth) {
  LoopbackNetwork network(2);
  const auto errors = run_ranks(network, 2, [](Transport& transport) {
    Bytes bytes(transport.rank() == 0 ? 100 : 96);
    if (transport.rank() == 0)
      transport.send_now(1, Channel::carry, bytes, {"rows of step 7"});
    else
      transport.receive_now(0, Channel::carry, bytes, {"rows of step 8"});
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("100 bytes"), HasSubstr("96 bytes"), HasSubstr("step 7"),
                             HasSubstr("step 8")));
}

TEST(Loopback, ADeadPeerRunsIntoTheDeadlineThatNamesIt) {
  LoopbackNetwork network(2, within(milliseconds(200)));
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_ranks(network, 2, [&](Transport& transport) {
    if (transport.rank() == 1) {
      network.die(1);
      std::this_thread::sleep_for(milliseconds(600));
      return;
    }
    Bytes bytes(4);
    transport.receive_now(1, Channel::result, bytes, {"layer 12 of request 'a7', step 301"});
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("waited 0.2 s for rank 1: layer 12 of request 'a7', step 301"),
                               HasSubstr("no sign of life")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Loopback, ASlowPeerDoesNotTimeOutNorDoesAChainBehindIt) {
  LoopbackNetwork network(3, within(milliseconds(100)));
  const auto errors = run_ranks(network, 3, [&](Transport& transport) {
    Bytes bytes(4);
    if (transport.rank() == 2)
      std::this_thread::sleep_for(milliseconds(500));
    else
      transport.receive_now(transport.rank() + 1, Channel::carry, bytes, {"rows"});
    if (transport.rank() > 0) transport.send_now(transport.rank() - 1, Channel::carry, bytes, {"rows"});
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Collectives, ReachEveryRankInOrder) {
  LoopbackNetwork network(3);
  const auto errors = run_ranks(network, 3, [&](Transport& transport) {
    const auto rank = transport.rank();
    const auto all = all_gather(transport, std::string(static_cast<std::size_t>(rank), 'x'), "lengths");
    EXPECT_THAT(all, testing::ElementsAre("", "x", "xx"));
    EXPECT_EQ(broadcast(transport, rank == 2 ? pattern(5000, 3) : Bytes(7), 2, "a pattern"),
              pattern(5000, 3));
    EXPECT_TRUE(broadcast(transport, {}, 0, "nothing").empty());
    barrier(transport, "the end");
    EXPECT_THROW(broadcast(transport, {}, 3, "nothing"), Error);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Collectives, SayWhoDidNotComeToWhat) {
  const std::vector<std::pair<std::function<void(Transport&)>, std::string>> collectives{
      {[](Transport& transport) { all_gather(transport, "red", "the ranks' colours"); },
       "gathering the ranks' colours"},
      {[](Transport& transport) { broadcast(transport, {}, 2, "the model's folder"); },
       "spreading the model's folder"},
      {[](Transport& transport) { barrier(transport, "the end of the work"); },
       "meeting for the end of the work"}};
  for (const auto& [collective, said] : collectives) {
    LoopbackNetwork network(3, within(milliseconds(200)));
    const auto errors = run_ranks(network, 3, [&](Transport& transport) {
      if (transport.rank() != 2) return collective(transport);
      network.die(2);
      std::this_thread::sleep_for(milliseconds(900));
    });
    EXPECT_THAT(errors[0], AllOf(HasSubstr("for rank 2: " + said), HasSubstr("no sign of life")));
    // Rank 1 waits for rank 2, or for rank 0, which ends at its own deadline.
    EXPECT_THAT(errors[1], AllOf(HasSubstr(said), HasSubstr("no sign of life")));
  }
}

TEST(Collectives, WaitForASlowRank) {
  LoopbackNetwork network(3, within(milliseconds(100)));
  const auto errors = run_ranks(network, 3, [&](Transport& transport) {
    if (transport.rank() == 2) std::this_thread::sleep_for(milliseconds(500));
    EXPECT_EQ(all_gather(transport, "red", "the ranks' colours").size(), 3U);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Loopback, RanksThatWaitInACircleRunIntoTheDeadline) {
  LoopbackNetwork network(3, within(milliseconds(150)));
  const auto errors = run_ranks(network, 3, [&](Transport& transport) {
    Bytes bytes(4);
    transport.receive_now((transport.rank() + 1) % 3, Channel::carry, bytes, {"rows"});
  });
  EXPECT_THAT(errors, testing::Contains(HasSubstr("in a circle")));
}

TEST(Loopback, ALostMessageIsFoundByTheDeadline) {
  auto options = within(milliseconds(150));
  options.fate = [](int from, int, Channel channel, std::uint64_t index) {
    return LoopbackFate{from == 0 && channel == Channel::carry && index == 1, {}};
  };
  LoopbackNetwork network(2, options);
  const auto errors = run_ranks(network, 2, [&](Transport& transport) {
    Bytes bytes(4);
    for (int i = 0; i < 3; ++i) {
      if (transport.rank() == 0)
        transport.send_now(1, Channel::carry, bytes, {"step " + std::to_string(i)});
      else
        transport.receive_now(0, Channel::carry, bytes, {"step " + std::to_string(i)});
    }
  });
  // The third message comes in the second's place; the third receive finds nothing.
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("for rank 0: step 2"));
}

TEST(Loopback, DelayedMessagesComeLateAndInOrder) {
  LoopbackOptions options;
  options.fate = [](int, int, Channel, std::uint64_t index) {
    return LoopbackFate{false, index == 0 ? milliseconds(60) : milliseconds(0)};
  };
  LoopbackNetwork network(2, options);
  const auto errors = run_ranks(network, 2, [&](Transport& transport) {
    if (transport.rank() == 0) {
      const auto first = transport.send(1, Channel::carry, std::as_bytes(std::span("a", 1)), {});
      const auto second = transport.send(1, Channel::carry, std::as_bytes(std::span("b", 1)), {});
      second->wait();
      first->wait();
    } else {
      Bytes bytes(1);
      const auto begin = std::chrono::steady_clock::now();
      transport.receive_now(0, Channel::carry, bytes, {});
      EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
      EXPECT_EQ(bytes[0], std::byte{'a'});
      transport.receive_now(0, Channel::carry, bytes, {});
      EXPECT_EQ(bytes[0], std::byte{'b'});
      EXPECT_GE(transport.waited(Channel::carry), milliseconds(50));
      EXPECT_EQ(transport.waited(Channel::control), milliseconds(0));
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Loopback, ARankThatThrowsEndsTheOthersByTheDeadline) {
  LoopbackNetwork network(2, within(milliseconds(150)));
  const auto errors = run_ranks(network, 2, [&](Transport& transport) {
    Bytes bytes(4);
    if (transport.rank() == 1) {
      const auto dropped = transport.receive(0, Channel::control, bytes, {});
      throw_bad_data("a bad request");
    }
    transport.receive_now(1, Channel::carry, bytes, {"rows"});
  });
  EXPECT_THAT(errors[0], HasSubstr("for rank 1: rows"));
  EXPECT_EQ(errors[1], "a bad request");
}

TEST(Loopback, RefusesRanksThatThereAreNot) {
  LoopbackNetwork network(2);
  const auto endpoint = network.endpoint(0);
  Bytes bytes(4);
  EXPECT_THROW(endpoint->send(2, Channel::carry, bytes, {}), Error);
  EXPECT_THROW(endpoint->receive(-1, Channel::carry, bytes, {}), Error);
  EXPECT_THROW(network.endpoint(0), Error);
  EXPECT_THROW(network.endpoint(2), Error);
  EXPECT_THROW(LoopbackNetwork(0), Error);
}

TEST(Loopback, ManyMessagesBetweenThreads) {
  constexpr int kRanks = 5;
  LoopbackNetwork network(kRanks);
  const auto errors = run_ranks(network, kRanks, [](Transport& transport) {
    std::uint64_t token = 0;
    for (int round = 0; round < 200; ++round) {
      const auto bytes = std::as_writable_bytes(std::span(&token, 1));
      if (transport.rank() != 0 || round != 0)
        transport.receive_now((transport.rank() + kRanks - 1) % kRanks, Channel::carry, bytes, {"the token"});
      ++token;
      if (transport.rank() != kRanks - 1 || round != 199)
        transport.send_now((transport.rank() + 1) % kRanks, Channel::carry, bytes, {"the token"});
    }
    if (transport.rank() == kRanks - 1) {
      EXPECT_EQ(token, 200U * kRanks);
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace diffuse
