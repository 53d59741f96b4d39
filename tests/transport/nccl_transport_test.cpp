// The transport over NCCL, as it is, over the stand-ins of CUDA and NCCL: every rank has a device of its own.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "mpi_test_main.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"
#include "transport/collectives.hpp"
#include "transport/nccl.hpp"

namespace diffuse {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, int seed) {
  Bytes bytes(size);
  std::uint64_t state = static_cast<std::uint64_t>(seed) * 2654435761U + 1;
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

class NcclTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(rank()), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamSynchronize(compute_);
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(compute_);
    EXPECT_EQ(standin::live_objects(), 0U);
  }

  // The transports, made and ended collectively.
  class Linked {
   public:
    Linked(cudaStream_t compute, std::chrono::nanoseconds timeout)
        : host_(make_mpi_transport(test_session(), {timeout})),
          nccl_(make_nccl_transport(test_session(), *host_, {.compute_stream = compute})) {}
    ~Linked() {
      if (!testing::Test::HasFatalFailure()) nccl_->close();
    }
    NcclTransport* operator->() const { return nccl_.get(); }

   private:
    std::unique_ptr<MpiTransport> host_;
    std::unique_ptr<NcclTransport> nccl_;
  };
  Linked linked(std::chrono::nanoseconds timeout = std::chrono::seconds(60)) { return {compute_, timeout}; }

  static int rank() { return test_session().rank(); }
  static bool first() { return rank() == 0; }
  static bool last() { return rank() + 1 == test_session().size(); }

  std::span<std::byte> device(std::size_t size) {
    memory_.push_back(nullptr);
    EXPECT_EQ(cudaMalloc(&memory_.back(), std::max<std::size_t>(size, 1)), cudaSuccess);
    return {static_cast<std::byte*>(memory_.back()), size};
  }
  // Queued on the compute stream, as a kernel is.
  void write(std::span<std::byte> to, Bytes bytes) {
    if (to.empty()) return;
    standin_enqueue(compute_,
                    [to, from = std::move(bytes)] { std::memcpy(to.data(), from.data(), from.size()); });
  }
  Bytes read(std::span<const std::byte> from) {
    Bytes bytes(from.size());
    if (from.empty()) return bytes;
    EXPECT_EQ(cudaMemcpyAsync(bytes.data(), from.data(), from.size(), cudaMemcpyDeviceToHost, compute_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(compute_), cudaSuccess);
    return bytes;
  }

  cudaStream_t compute_ = nullptr;
  std::vector<void*> memory_;
};

TEST_F(NcclTransportTest, CarriesOfAllSizes) {
  const auto self = linked();
  EXPECT_TRUE(self->carries_device_memory());
  EXPECT_EQ(self->rank(), rank());
  std::uint64_t sent = 0;
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 65537UL, std::size_t{20} << 20}) {
    const auto incoming = device(size);
    const auto outgoing = device(size);
    write(outgoing, pattern(size, rank()));
    std::unique_ptr<Ticket> receive;
    std::unique_ptr<Ticket> send;
    if (!first()) receive = self->receive(rank() - 1, Channel::carry, incoming, {"rows"});
    if (!last()) send = self->send(rank() + 1, Channel::carry, outgoing, {"rows"});
    if (receive) receive->wait();
    if (send) send->wait();
    if (!first()) {
      EXPECT_TRUE(read(incoming) == pattern(size, rank() - 1)) << size;
    }
    if (!last()) sent += size;
  }
  EXPECT_EQ(self->bytes_sent(), sent);
}

// As a pipeline does: receives posted ahead, a few in flight, each step's rows changed and handed on.
TEST_F(NcclTransportTest, RowsGoThroughAllStagesInOrder) {
  constexpr int kSteps = 40;
  constexpr std::size_t kAhead = 3;
  const auto size_of_step = [](int step) { return static_cast<std::size_t>(step * step * 37 % 20011 + 8); };
  const auto self = linked();
  struct Slot {
    std::span<std::byte> buffer;
    std::unique_ptr<Ticket> received, sent;
  };
  std::vector<Slot> slots(kAhead);
  for (auto& slot : slots) slot.buffer = device(20100);
  const auto slot_of = [&](int step) -> Slot& { return slots[static_cast<std::size_t>(step) % kAhead]; };
  const auto listen = [&](int step) {
    auto& slot = slot_of(step);
    if (slot.sent) slot.sent->wait();
    slot.sent.reset();
    if (!first())
      slot.received = self->receive(rank() - 1, Channel::carry, slot.buffer.first(size_of_step(step)),
                                    {"step " + std::to_string(step)});
  };
  listen(0);
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) listen(step + 1);
    auto& slot = slot_of(step);
    const auto rows = slot.buffer.first(size_of_step(step));
    if (first()) {
      write(rows, pattern(rows.size(), step));
    } else {
      slot.received->wait();
      slot.received.reset();
    }
    // Every stage adds one to every byte.
    standin_enqueue(compute_, [rows] {
      for (auto& byte : rows) byte = static_cast<std::byte>(static_cast<unsigned char>(byte) + 1);
    });
    if (!last()) {
      slot.sent = self->send(rank() + 1, Channel::carry, rows, {"step " + std::to_string(step)});
      continue;
    }
    auto expected = pattern(rows.size(), step);
    for (auto& byte : expected) byte = static_cast<std::byte>(static_cast<int>(byte) + test_session().size());
    ASSERT_TRUE(read(rows) == expected) << step;
  }
  for (auto& slot : slots) {
    if (slot.sent) slot.sent->wait();
  }
}

TEST_F(NcclTransportTest, AReceiveWaitsForWhoReadsTheBufferBefore) {
  const auto self = linked();
  const auto buffer = device(1000);
  const auto copy = device(1000);
  write(buffer, pattern(1000, 77));
  if (!first()) {
    standin_enqueue(compute_, [=] { std::memcpy(copy.data(), buffer.data(), buffer.size()); });
    const auto receive = self->receive(rank() - 1, Channel::carry, buffer, {"rows"});
    // The rows may come now, and nobody has waited for the compute stream.
    std::this_thread::sleep_for(milliseconds(100));
    receive->wait();
    EXPECT_TRUE(read(copy) == pattern(1000, 77));
    EXPECT_TRUE(read(buffer) == pattern(1000, rank() - 1));
  }
  if (!last()) {
    const auto mine = device(1000);
    write(mine, pattern(1000, rank()));
    self->send(rank() + 1, Channel::carry, mine, {"rows"})->wait();
  }
}

TEST_F(NcclTransportTest, TheOtherChannelsGoTheHostsWay) {
  const auto self = linked();
  Bytes in(300);
  const auto out = pattern(300, rank());
  const int next = (rank() + 1) % self->size();
  const int previous = (rank() + self->size() - 1) % self->size();
  for (const auto channel : {Channel::control, Channel::result, Channel::memory}) {
    const auto receive = self->receive(previous, channel, in, {"a ring"});
    self->send(next, channel, out, {"a ring"})->wait();
    receive->wait();
    EXPECT_TRUE(in == pattern(300, previous));
  }
}

TEST_F(NcclTransportTest, DoneBecomesTrueWithoutWaiting) {
  const auto self = linked();
  const auto buffer = device(5000);
  write(buffer, pattern(5000, 3));
  std::unique_ptr<Ticket> ticket;
  if (first() && !last()) ticket = self->send(1, Channel::carry, buffer, {"rows"});
  if (rank() == 1) ticket = self->receive(0, Channel::carry, buffer, {"rows"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ticket && !ticket->done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  if (ticket) {
    EXPECT_TRUE(ticket->done());
  }
}

TEST_F(NcclTransportTest, ASendGoesOutWhileItsStageDoesSomethingElse) {
  const auto self = linked();
  const auto buffer = device(std::size_t{4} << 20);
  std::unique_ptr<Ticket> send;
  Bytes word(1);
  if (first() && !last()) {
    write(buffer, pattern(buffer.size(), 5));
    send = self->send(1, Channel::carry, buffer, {"rows"});
    self->receive_now(1, Channel::result, word, {"an answer"});  // which rank 1 gives once it has the rows
  }
  if (rank() == 1) {
    self->receive(0, Channel::carry, buffer, {"rows"})->wait();
    EXPECT_TRUE(read(buffer) == pattern(buffer.size(), 5));
    self->send_now(0, Channel::result, word, {"an answer"});
  }
  if (send) send->wait();
}

TEST_F(NcclTransportTest, ASlowRankDoesNotTimeOutNorDoesAChainBehindIt) {
  const auto self = linked(milliseconds(400));
  const auto buffer = device(8);
  if (first()) std::this_thread::sleep_for(milliseconds(1500));
  if (!first()) self->receive(rank() - 1, Channel::carry, buffer, {"rows"})->wait();
  if (first()) write(buffer, pattern(8, 0));
  if (!last()) self->send(rank() + 1, Channel::carry, buffer, {"rows"})->wait();
  if (!first()) {
    EXPECT_GT(self->waited(Channel::carry), milliseconds(1000));
  }
}

TEST_F(NcclTransportTest, RefusesCarriesThatNoLinkServes) {
  const auto self = linked();
  const auto buffer = device(4);
  EXPECT_THROW(self->send(rank(), Channel::carry, buffer, {}), Error);
  EXPECT_THROW(self->send(rank() + 2, Channel::carry, buffer, {}), Error);
  EXPECT_THROW(self->receive(rank() + 1, Channel::carry, buffer, {}), Error);
}

// The host's transport, whose waits end when the peer says that it has failed, as they do when a job ends.
class HostOfTwo final : public MpiTransport {
 public:
  HostOfTwo() : host_(make_mpi_transport(test_session(), {std::chrono::seconds(60)})) {}

  // Both ranks, before and after what may fail.
  void begin() {
    theirs_ = std::byte{0};
    word_ = host_->receive(peer(), Channel::result, std::span(&theirs_, 1), {"whether the peer failed"});
  }
  void end(bool failed) {
    const auto mine = static_cast<std::byte>(failed);
    host_->send_now(peer(), Channel::result, std::span(&mine, 1), {"whether this rank failed"});
    word_->wait();
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::unique_ptr<Ticket> send(int peer, Channel channel, std::span<const std::byte> bytes,
                               Purpose purpose) override {
    return host_->send(peer, channel, bytes, std::move(purpose));
  }
  std::unique_ptr<Ticket> receive(int peer, Channel channel, std::span<std::byte> bytes,
                                  Purpose purpose) override {
    return host_->receive(peer, channel, bytes, std::move(purpose));
  }
  std::chrono::nanoseconds waited(Channel channel) const override { return host_->waited(channel); }
  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }
  void wait_until(const std::function<bool()>& done, int peer, Channel channel,
                  const Purpose& purpose) override {
    const auto asked = [&] {
      if (word_->done() && theirs_ != std::byte{0}) throw_io("the peer has failed");
      return done();
    };
    host_->wait_until(asked, peer, channel, purpose);
  }
  void close() override { host_->close(); }

 private:
  int peer() const { return 1 - host_->rank(); }
  std::unique_ptr<MpiTransport> host_;
  std::byte theirs_{};
  std::unique_ptr<Ticket> word_;
};

struct Fault {
  int rank;
  std::string function;
  int call;
};

// Called while something is waited for: how often depends on the moment.
bool polled(const std::string& function) {
  return function == "cudaEventQuery" || function == "ncclCommGetAsyncError" ||
         function == "ncclAsyncError" || function == "cudaGetLastError";
}

// Every call that either rank has counted.
std::vector<Fault> faults_of(const std::vector<std::string>& counts) {
  std::vector<Fault> faults;
  for (int rank = 0; rank < 2; ++rank) {
    std::istringstream list(counts[static_cast<std::size_t>(rank)]);
    int count = 0;
    for (std::string function; list >> function >> count;) {
      for (int call = 1; call <= (polled(function) ? std::min(count, 2) : count); ++call)
        faults.push_back({rank, function, call});
    }
  }
  return faults;
}

TEST_F(NcclTransportTest, EveryCallThatFailsEndsInAnErrorAndNoHang) {
  if (test_session().size() != 2) GTEST_SKIP() << "of two ranks";
  const auto rows = device(1000);
  HostOfTwo host;
  const auto link_and_carry = [&] {
    const auto nccl = make_nccl_transport(
        test_session(), host,
        {.compute_stream = compute_, .patience = std::chrono::hours(1), .peers_word = milliseconds(0)});
    for (int step = 0; step < 2; ++step) {
      if (first())
        nccl->send_now(1, Channel::carry, rows, {"rows"});
      else
        nccl->receive_now(0, Channel::carry, rows, {"rows"});
    }
    nccl->close();
  };
  // What went wrong, on this rank; empty where nothing did.
  const auto attempt = [&](const std::string& fault) {
    std::string problem;
    host.begin();
    standin::inject(fault);
    try {
      link_and_carry();
    } catch (const Error& error) {
      problem = error.what();
      EXPECT_FALSE(problem.empty());
    }
    const bool happened = standin::fault_happened();
    const auto counts = standin::call_counts();
    standin::inject("");
    EXPECT_EQ(happened, !fault.empty()) << fault;
    EXPECT_TRUE(!happened || !problem.empty()) << fault << " was not told";
    host.end(!problem.empty());
    standin::reset_device();
    cudaStreamSynchronize(compute_);
    std::string list;
    for (const auto& [function, count] : counts) {
      // Before the ranks first wait for one another: cli.cuda_faults has it.
      if (function != "ncclGetUniqueId") list += function + " " + std::to_string(count) + "\n";
    }
    return std::pair(problem, list);
  };
  const auto clean = attempt("");
  EXPECT_EQ(clean.first, "");
  const auto faults = faults_of(all_gather(host, clean.second, "what each rank has called"));
  EXPECT_GT(faults.size(), 60U);
  for (const auto& fault : faults) {
    const auto text = fault.function + ":" + std::to_string(fault.call);
    const auto problem = attempt(rank() == fault.rank ? text : "").first;
    if (rank() == fault.rank) {
      EXPECT_NE(problem, "the peer has failed") << text;
    }
    ASSERT_FALSE(HasFailure()) << text << " on rank " << fault.rank << ": " << problem;
  }
  if (first()) std::printf("%zu faults\n", faults.size());
  EXPECT_EQ(attempt("").first, "") << "and afterwards all is well";
}

TEST_F(NcclTransportTest, ComesAndGoesManyTimes) {
  for (int i = 0; i < 5; ++i) {
    const auto self = linked();
    const auto buffer = device(16);
    write(buffer, pattern(16, i));
    if (!first()) self->receive(rank() - 1, Channel::carry, buffer, {"rows"})->wait();
    if (!last()) self->send(rank() + 1, Channel::carry, buffer, {"rows"})->wait();
  }
}

}  // namespace
}  // namespace diffuse
