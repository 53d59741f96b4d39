#pragma once
// What a run of pictures says of those under way: step, seconds a step, time left.

#include <cstdint>
#include <string>
#include <vector>

namespace diffuse {

// Pure: the caller tells the time.
class PictureProgress {
 public:
  struct Of {
    std::string name;
    std::int64_t first_step = 0;
    std::int64_t steps = 1;
  };
  explicit PictureProgress(const std::vector<Of>& pictures);

  // A picture stands before `step`, at a time in seconds. "request a: step 12 of 50, 1.20 s a step, 0:46
  // left" of each that is under way, the first four of them, and how many are done. A step's seconds are the
  // mean over the picture's own from its first one to here.
  std::string on_step(std::size_t picture, std::int64_t step, double seconds);

 private:
  struct State {
    Of of;
    std::int64_t step = 0;
    double first = 0;  // when its first step was done
    double last = 0;
    bool under_way() const { return step > of.first_step && step < of.steps; }
    std::string text() const;
  };
  std::vector<State> pictures_;
};

// "0:46", "12:05", "3:07:12".
std::string clock_text(double seconds);

}  // namespace diffuse
