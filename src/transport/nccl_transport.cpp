#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "transport/collectives.hpp"
#include "transport/nccl.hpp"
#include "transport/nccl_link.hpp"

namespace diffuse {

namespace {

using nccl::check;
using nccl::Side;

int running_version() {
  int version = 0;
  check(ncclGetVersion(&version), "asking for its version");
  return version;
}

// The two links of this rank. Tickets keep it alive.
class Links {
 public:
  Links(MpiSession& session, const NcclOptions& options)
      : session_(session),
        compute_(static_cast<cudaStream_t>(options.compute_stream)),
        patience_(options.patience),
        peers_word_(options.peers_word) {}

  nccl::Link& of(Side side, int peer) {
    auto& link = side == Side::sender ? to_next : from_previous;
    const int neighbour = session_.rank() + (side == Side::sender ? 1 : -1);
    if (peer != neighbour || !link)
      throw_internal("a carry between ranks " + std::to_string(session_.rank()) + " and " +
                     std::to_string(peer) + ", which no link joins");
    return *link;
  }

  // Runs what may fail; all links go down with the one that does, and the job ends in any case.
  template <class Body>
  auto guarded(const Body& body) {
    try {
      return body();
    } catch (const Error& problem) {
      give_up(problem.code(), problem.what());
      throw;
    }
  }

  void give_up(ExitCode code, const std::string& why) {
    session_.abort_all_after(patience_, code, "diffuse: " + why + " (and the GPU does not come back)");
    if (to_next) to_next->abort();
    if (from_previous) from_previous->abort();
  }

  cudaStream_t compute() const { return compute_; }
  std::chrono::nanoseconds peers_word() const { return peers_word_; }

  std::optional<nccl::Link> to_next;
  std::optional<nccl::Link> from_previous;

 private:
  MpiSession& session_;
  cudaStream_t compute_;
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds peers_word_;
};

class NcclTicket final : public Ticket {
 public:
  NcclTicket(std::shared_ptr<Links> links, nccl::Link& link, nccl::Event event, std::string purpose)
      : links_(std::move(links)), link_(link), event_(std::move(event)), purpose_(std::move(purpose)) {}

  ~NcclTicket() override {
    if (!over_) links_->give_up(ExitCode::io, "a transfer was given up: " + purpose_);
  }

  bool done() override {
    if (over_) return true;
    if (!links_->guarded([&] { return link_.reached(event_, purpose_); })) return false;
    wait();
    return true;
  }

  void wait() override {
    if (over_) return;
    links_->guarded([&] {
      link_.await(event_, links_->compute(), purpose_);
      return 0;
    });
    link_.give_back(std::move(event_));
    over_ = true;
  }

 private:
  std::shared_ptr<Links> links_;
  nccl::Link& link_;
  nccl::Event event_;
  std::string purpose_;
  bool over_ = false;
};

class Nothing final : public Ticket {
  bool done() override { return true; }
  void wait() override {}
};

class LinkedTransport final : public NcclTransport {
 public:
  LinkedTransport(MpiSession& session, MpiTransport& host, const NcclOptions& options)
      : session_(session), host_(host), links_(std::make_shared<Links>(session, options)) {
    connect();
  }
  ~LinkedTransport() override {
    if (!closed_ && size() > 1) links_->give_up(ExitCode::io, "the transport was given up");
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  bool carries_device_memory() const override { return true; }

  std::unique_ptr<Ticket> send(int peer, Channel channel, std::span<const std::byte> bytes,
                               Purpose purpose) override {
    if (channel != Channel::carry) return host_.send(peer, channel, bytes, std::move(purpose));
    bytes_sent_ += bytes.size();
    // One function serves both directions; a send only reads.
    return start(Side::sender, peer, const_cast<std::byte*>(bytes.data()), bytes.size(), purpose);
  }

  std::unique_ptr<Ticket> receive(int peer, Channel channel, std::span<std::byte> bytes,
                                  Purpose purpose) override {
    if (channel != Channel::carry) return host_.receive(peer, channel, bytes, std::move(purpose));
    return start(Side::receiver, peer, bytes.data(), bytes.size(), purpose);
  }

  std::chrono::nanoseconds waited(Channel channel) const override { return host_.waited(channel); }
  std::uint64_t bytes_sent() const override { return host_.bytes_sent() + bytes_sent_; }

  void close() override {
    links_->guarded([&] {
      auto& links = *links_;
      if (links.to_next) links.to_next->begin_close();
      if (links.from_previous) links.from_previous->begin_close();
      if (links.to_next) links.to_next->end_close();
      if (links.from_previous) links.from_previous->end_close();
      return 0;
    });
    closed_ = true;
  }

 private:
  std::unique_ptr<Ticket> start(Side side, int peer, std::byte* data, std::size_t bytes,
                                const Purpose& purpose) {
    auto& link = links_->of(side, peer);
    if (bytes == 0) return std::make_unique<Nothing>();
    auto event = links_->guarded([&] { return link.start(data, bytes, links_->compute(), purpose.what); });
    return std::make_unique<NcclTicket>(links_, link, std::move(event), purpose.what);
  }

  std::string name_of(int peer) const {
    return "rank " + std::to_string(peer) + " (host " + session_.hosts()[static_cast<std::size_t>(peer)] +
           ")";
  }

  // Link i joins the ranks i and i + 1. Those of even number are made first, then the others: a rank makes
  // one at a time, and a hundred ranks need no longer than three.
  void connect() {
    const auto ids = exchange_ids();
    for (const int parity : {0, 1}) {
      const bool sends = rank() % 2 == parity;
      const int peer = rank() + (sends ? 1 : -1);
      if (peer < 0 || peer >= size()) continue;
      auto& link = sends ? links_->to_next : links_->from_previous;
      links_->guarded([&] {
        link.emplace(host_, sends ? Side::sender : Side::receiver, peer, name_of(peer), links_->peers_word());
        link->connect(ids[static_cast<std::size_t>(std::min(rank(), peer))]);
        return 0;
      });
      try_link(sends ? Side::sender : Side::receiver, peer);
    }
  }

  // The id of each link, made by its sender.
  std::vector<ncclUniqueId> exchange_ids() {
    ncclUniqueId mine = {};
    if (rank() + 1 < size()) check(ncclGetUniqueId(&mine), "making the id of a link");
    std::vector<ncclUniqueId> ids;
    for (const auto& bytes : all_gather(host_, std::as_bytes(std::span(&mine, 1)), "the ids of the links")) {
      if (bytes.size() != sizeof mine) throw_internal("an id of a link has the wrong size");
      std::memcpy(&ids.emplace_back(), bytes.data(), sizeof mine);
    }
    return ids;
  }

  // The first transfer also makes NCCL connect the two, which takes its time.
  void try_link(Side side, int peer) {
    const std::uint64_t word = 0x6469666675736530U + static_cast<std::uint64_t>(std::min(rank(), peer));
    std::uint64_t host_word = side == Side::sender ? word : 0;
    const std::string doing = "trying the link with " + name_of(peer);
    const auto stream = links_->compute();
    nccl::DeviceMemory memory(sizeof word, stream, doing);
    const std::span<std::byte> bytes(memory.get(), sizeof word);
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
      check(cudaMemcpyAsync(to, from, sizeof word, kind, stream), doing);
    };
    copy(bytes.data(), &host_word, cudaMemcpyHostToDevice);
    start(side, peer, bytes.data(), bytes.size(), {"the first word over the link"})->wait();
    copy(&host_word, bytes.data(), cudaMemcpyDeviceToHost);
    check(cudaStreamSynchronize(stream), doing);
    memory.free(doing);
    if (host_word != word) throw_io("the link from " + name_of(peer) + " brings wrong data");
  }

  MpiSession& session_;
  MpiTransport& host_;
  std::shared_ptr<Links> links_;
  std::uint64_t bytes_sent_ = 0;
  bool closed_ = false;
};

}  // namespace

bool nccl_built() {
  return true;
}

std::string nccl_version() {
  const int version = running_version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

bool nccl_shares_devices() {
  constexpr int kFirstVersion = 23000;
  const char* wanted = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return wanted != nullptr && std::strcmp(wanted, "1") == 0 && running_version() >= kFirstVersion;
}

std::unique_ptr<NcclTransport> make_nccl_transport(MpiSession& session, MpiTransport& host,
                                                   const NcclOptions& options) {
  return std::make_unique<LinkedTransport>(session, host, options);
}

}  // namespace diffuse
