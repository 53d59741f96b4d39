#pragma once
// Rank 0's words to the stages: descriptors and what follows them, sent without waiting and kept until they
// have arrived; and at the end the stages' reports.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/stage.hpp"
#include "schedule/step.hpp"
#include "slice/plan.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// Digests [layers][positions] of each lane -> [layers][lanes * positions].
std::vector<std::uint64_t> side_by_side(std::vector<std::vector<std::uint64_t>> lanes,
                                        std::int64_t positions);

// How many layers of digests each stage holds: its own, and the front as one more of the first's.
std::vector<std::int64_t> digest_layers(const Plan& plan);

// The stages' digests of a lane that left, stage by stage, and the messages that bring them. Owns what they
// are received into, so it outlives its tickets.
struct GatheredDigests {
  std::vector<std::vector<std::uint64_t>> parts;  // [stages][layers * positions]
  std::vector<std::unique_ptr<Ticket>> tickets;

  // Whether all have come; waits for them where `wait` says so. Raises what their tickets raise.
  bool here(bool wait);
  std::vector<std::uint64_t> joined() const;  // [layers * positions]
};

class Commander {
 public:
  // `layers`: as digest_layers() has them, a stage each.
  Commander(Transport& transport, std::span<const std::int64_t> layers);

  int stages() const { return static_cast<int>(layers_.size()); }
  std::int64_t layers_of(int stage) const { return layers_[static_cast<std::size_t>(stage)]; }
  std::int64_t first_layer_of(int stage) const;
  std::int64_t last_layer() const { return first_layer_of(stages()) - 1; }

  // To every other stage. `about` is whose descriptor it is, for messages.
  void tell(const Descriptor& descriptor, const std::string& about);
  // What was told last, to a rank without layers too.
  void tell_also(int rank, const std::string& about);
  // Behind the descriptor that was told last, to one of those who heard it.
  void send_behind(int rank, std::vector<std::byte> bytes, const std::string& what);

  // Tells every stage to finish, and the `others` without layers, waits for all that was said, and takes in
  // the reports: of the stages, then of the others.
  std::vector<StageReport> finish(Stage& own, std::span<const std::int32_t> others = {});

 private:
  struct Told {
    Descriptor descriptor;
    std::vector<std::byte> behind;
    std::vector<std::unique_ptr<Ticket>> tickets;
    bool arrived() const;
  };

  Transport& transport_;
  std::vector<std::int64_t> layers_;
  std::deque<Told> told_;
};

}  // namespace diffuse
