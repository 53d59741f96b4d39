#pragma once
// Chooses the number of decode groups by measuring. How many pay depends on what no plan knows: stages that
// share a memory slow one another down, so that one large group may beat two in flight; hops over a slow
// network want more groups than stages. Regrouping never changes a result, so a run may try.
//
// A pure value: it is told when results arrived and walks from the number it starts with to a better
// neighbour until there is none. When the number of live sequences has changed much, it looks again.

#include <cstdint>
#include <map>
#include <set>

namespace diffuse {

class GroupTuner {
 public:
  // `first`: the number to begin with, at least 1.
  explicit GroupTuner(std::int32_t first) : groups_(first) {}

  std::int32_t groups() const { return groups_; }

  // A decode step's result has come, with a token for each of `tokens` sequences. `least` and `most` bound
  // the groups that `live` sequences can be in. Steps that carry rows of prompts too are told by disturbed().
  struct Result {
    double seconds = 0;  // when; of any clock that does not go back
    std::int64_t tokens = 0;
    std::int64_t live = 0;
    std::int32_t least = 1;
    std::int32_t most = 1;
  };
  void on(const Result& result);
  void disturbed();

 private:
  void begin_trial(std::int32_t groups);
  void forget();
  void conclude(double rate, const Result& result);

  std::int32_t groups_;
  std::map<std::int32_t, double> rates_;  // tokens a second, of the numbers tried
  std::int32_t best_ = 1;                 // of these
  std::set<std::int32_t> again_;          // tried once more
  bool settled_ = false;
  std::int64_t live_ = 0;    // when the trials began
  std::int64_t passed_ = 0;  // tokens since the trial began
  bool measuring_ = false;   // the regrouping is over
  double start_ = 0;         // of the measurement
  std::int64_t tokens_ = 0;  // in it
};

}  // namespace diffuse
