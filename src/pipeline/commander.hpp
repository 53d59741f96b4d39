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
#include "transport/transport.hpp"

namespace diffuse {

// Digests [layers][positions] of each lane -> [layers][lanes * positions].
std::vector<std::uint64_t> side_by_side(std::vector<std::vector<std::uint64_t>> lanes,
                                        std::int64_t positions);

class Commander {
 public:
  // `layers`: how many layers of digests each stage holds, the front being one of the first's.
  Commander(Transport& transport, std::span<const std::int64_t> layers);

  int stages() const { return static_cast<int>(layers_.size()); }
  std::int64_t layers_of(int stage) const { return layers_[static_cast<std::size_t>(stage)]; }
  std::int64_t first_layer_of(int stage) const;
  std::int64_t last_layer() const { return first_layer_of(stages()) - 1; }

  // To every other stage. `about` is whose descriptor it is, for messages.
  void tell(const Descriptor& descriptor, const std::string& about);
  // Tells every stage to finish, waits for all that was said, and takes in the reports.
  std::vector<StageReport> finish(Stage& own);

 private:
  struct Told {
    Descriptor descriptor;
    std::vector<std::unique_ptr<Ticket>> tickets;
    bool arrived() const;
  };

  Transport& transport_;
  std::vector<std::int64_t> layers_;
  std::deque<Told> told_;
};

}  // namespace diffuse
