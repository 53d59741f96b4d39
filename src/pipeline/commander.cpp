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

std::vector<StageReport> Commander::finish(Stage& own) {
  Descriptor command;
  command.command = Command::finish;
  tell(command, "the end");
  for (auto& told : told_) {
    for (auto& ticket : told.tickets) ticket->wait();
  }
  told_.clear();
  std::vector<StageReport> reports = {own.finish()};
  for (int peer = 1; peer < stages(); ++peer) {
    auto& report = reports.emplace_back();
    transport_.receive_now(peer, Channel::result, std::as_writable_bytes(std::span(&report, 1)),
                           {"the report of a stage"});
  }
  return reports;
}

}  // namespace diffuse
