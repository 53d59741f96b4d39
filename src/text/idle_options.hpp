#pragma once
// Keys of `generate` that would change nothing beside the others: who gives one expects otherwise, and is
// told.

#include <map>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/json.hpp"
#include "text/generate_options.hpp"
#include "text/speech_options.hpp"

namespace diffuse {

// Why a given key changes nothing, as "`patience` is of a beam search, and …"; empty where it may change
// something, where its value says what holds without it (so that defaults may be written out), and for keys
// that stand for themselves. The options are the request's, the job's defaults included; of text with
// settle_sampling() behind them, of speech with the request's language.
std::string why_idle(std::string_view key, const GenerateOptions& options);
std::string why_idle(std::string_view key, const SpeechOptions& options);

// Throws bad data, one line that begins with `what`, for the first key of a request's own `generate` that
// changes nothing.
template <typename Options>
void check_idle(const Json& generate, const Options& options, const std::string& what) {
  for (const auto& [key, value] : generate.items()) {
    if (value.is_null()) continue;
    if (const auto why = why_idle(key, options); !why.empty()) throw_bad_data(what + ": " + why);
  }
}

// The keys of a job's `generate` that no request takes anything of.
class IdleDefaults {
 public:
  explicit IdleDefaults(const Json& defaults) {
    for (const auto& [key, value] : defaults.items())
      if (!value.is_null()) idle_.emplace(key, "");
  }

  // `why`: of a key, why it changes nothing for this request; empty where it may.
  template <typename Why>
  void see(const Why& why) {
    for (auto at = idle_.begin(); at != idle_.end();) {
      at->second = why(at->first);
      at = at->second.empty() ? idle_.erase(at) : std::next(at);
    }
    seen_ = true;
  }

  // Throws bad data, one line that begins with `what`, where a key changed nothing for all requests that were
  // seen, and there was one.
  void check(const std::string& what) const {
    if (seen_ && !idle_.empty()) throw_bad_data(what + ": " + idle_.begin()->second);
  }

 private:
  std::map<std::string, std::string> idle_;  // by key, why
  bool seen_ = false;
};

}  // namespace diffuse
