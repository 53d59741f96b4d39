#include "cli/stop_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>

namespace diffuse {
namespace {

volatile sig_atomic_t signals_seen = 0;

constexpr std::array kSignals = {SIGUSR1, SIGTERM};
constexpr int kSecondSignal = 2;

void on_signal(int) {
  signals_seen = signals_seen + 1;
  // Nothing is lost: what is finished stands in the journal.
  if (signals_seen >= kSecondSignal) _exit(75);
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const auto signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  signals_seen = 0;
  set_handler(on_signal);
}

StopSignals::~StopSignals() {
  set_handler(SIG_DFL);
}

bool StopSignals::asked() const {
  return signals_seen > 0;
}

}  // namespace diffuse
