#pragma once
// USR1 and TERM ask a run to stop at a safe point; a second one ends it at once.

namespace diffuse {

// While it lives, the signals are counted and not deadly. One at a time a process: a signal's handler can
// reach nothing but a global, which is why there is one here.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool asked() const;
};

}  // namespace diffuse
