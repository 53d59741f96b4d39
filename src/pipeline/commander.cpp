#include "pipeline/commander.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace diffuse {

std::vector<std::uint64_t> side_by_side(std::vector<std::vector<std::uint64_t>> lanes,
                                        std::int64_t positions) {
  if (lanes.size() == 1) return std::move(lanes.front());
  std::vector<std::uint64_t> joined;
  const auto each = static_cast<std::ptrdiff_t>(positions);
  const auto size = static_cast<std::ptrdiff_t>(lanes.front().size());
  for (std::ptrdiff_t at = 0; each > 0 && at < size; at += each) {
    for (const auto& lane : lanes) joined.insert(joined.end(), lane.begin() + at, lane.begin() + at + each);
  }
  return joined;
}

bool GatheredDigests::here(bool wait) {
  for (auto& ticket : tickets) {
    if (wait) ticket->wait();
    if (!ticket->done()) return false;
  }
  return true;
}

std::vector<std::uint64_t> GatheredDigests::joined() const {
  std::vector<std::uint64_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<std::int64_t> digest_layers(const Plan& plan) {
  std::vector<std::int64_t> layers;
  for (const auto& slice : plan.ranks)
    if (!slice.idle()) layers.push_back(slice.layers() + (slice.front ? 1 : 0));
  return layers;
}

Commander::Commander(Transport& transport, std::span<const std::int64_t> layers)
    : transport_(transport), layers_(layers.begin(), layers.end()) {}

bool Commander::Told::arrived() const {
  return std::all_of(tickets.begin(), tickets.end(), [](const auto& ticket) { return ticket->done(); });
}

std::int64_t Commander::first_layer_of(int stage) const {
  const auto before = std::accumulate(layers_.begin(), layers_.begin() + stage, std::int64_t{0});
  return stage == 0 ? 0 : before - 1;  // the front counts as one
}

void Commander::tell(const Descriptor& descriptor, const std::string& about) {
  while (!told_.empty() && told_.front().arrived()) told_.pop_front();
  auto& told = told_.emplace_back();
  told.descriptor = descriptor;
  for (int peer = 1; peer < stages(); ++peer) {
    told.tickets.push_back(
        transport_.send(peer, Channel::control, std::as_bytes(std::span(&told.descriptor, 1)),
                        {"a descriptor for layer " + std::to_string(first_layer_of(peer)) + ", " + about}));
  }
}

void Commander::tell_also(int rank, const std::string& about) {
  auto& told = told_.back();
  told.tickets.push_back(transport_.send(rank, Channel::control,
                                         std::as_bytes(std::span(&told.descriptor, 1)),
                                         {"a descriptor for rank " + std::to_string(rank) + ", " + about}));
}

void Commander::send_behind(int rank, std::vector<std::byte> bytes, const std::string& what) {
  auto& told = told_.back();
  told.behind = std::move(bytes);
  told.tickets.push_back(transport_.send(rank, Channel::control, told.behind, {what}));
}

std::vector<StageReport> Commander::finish(Stage& own, std::span<const std::int32_t> others) {
  Descriptor command;
  command.command = Command::finish;
  tell(command, "the end");
  for (const auto rank : others) tell_also(rank, "the end");
  for (auto& told : told_) {
    for (auto& ticket : told.tickets) ticket->wait();
  }
  told_.clear();
  std::vector<StageReport> reports = {own.finish()};
  const auto take = [&](int rank, const char* whose) {
    auto& report = reports.emplace_back();
    transport_.receive_now(rank, Channel::result, std::as_writable_bytes(std::span(&report, 1)),
                           {std::string("the report of ") + whose});
  };
  for (int peer = 1; peer < stages(); ++peer) take(peer, "a stage");
  for (const auto rank : others) take(rank, "a rank that encodes");
  return reports;
}

}  // namespace diffuse
