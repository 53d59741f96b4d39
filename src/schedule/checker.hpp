#pragma once
// Watches a schedule from outside and says where it breaks a promise, independently of how the policy keeps
// its books. For tests and the simulator; it costs a few operations an entry.

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "schedule/policy.hpp"

namespace diffuse {

class ScheduleChecker {
 public:
  ScheduleChecker(const ScheduleConfig& config, std::span<const SequenceNeed> needs, std::int32_t slots,
                  std::int32_t max_in_flight);

  void on_action(const Action& action);
  // A sequence was added; `before` is whom it follows, -1: nobody.
  void on_add(const SequenceNeed& need, std::int64_t before = -1);
  void on_result(const StepDone& done);
  void on_encoded(const Encoded& encoded);
  // After the policy says that it is finished; `unfit` are the sequences it reported as such.
  void at_end(std::span<const std::size_t> unfit);

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Sequence {
    std::int64_t run = 0;      // positions issued
    std::int64_t asked = 0;    // samples issued
    std::int64_t sampled = 0;  // samples that came back
    std::int64_t open_steps = 0;
    std::vector<std::int32_t> slots;  // a lane each
    std::int64_t before = -1;         // whom it follows
    bool followed = false;
    bool encoding = false;
    bool encoded = false;
    bool ended = false;
    bool released = false;
  };
  struct Step {
    std::uint64_t number = 0;
    std::vector<std::size_t> sampling;
    std::vector<std::size_t> all;
    Entry last;  // that was looked at
  };

  void on_encode(const Encode& encode);
  void on_admit(const Admit& admit);
  void on_run(const Descriptor& step);
  void on_entry(const Entry& entry, Step& step);
  void on_lane(std::size_t index, std::size_t lane, const Entry& entry, Step& step);
  void on_guide(std::size_t index, const Entry& entry, Step& step);
  void on_guides(const Step& step);
  void on_release(const Release& release);
  std::int64_t pages(std::size_t sequence) const;
  void expect(bool holds, const std::string& problem);

  ScheduleConfig config_;
  std::int32_t max_in_flight_;
  std::vector<SequenceNeed> needs_;
  std::vector<Sequence> sequences_;
  std::vector<std::int64_t> owner_;  // a slot's sequence, -1: free
  std::deque<Step> steps_;
  std::map<std::int32_t, std::deque<std::vector<std::size_t>>> encoding_;  // batches under way, a rank
  std::set<std::size_t> memories_;                                         // made and not taken
  std::set<std::int32_t> kept_;  // slots whose memory waits for a follower
  std::int64_t pages_ = 0;
  std::uint64_t last_number_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace diffuse
