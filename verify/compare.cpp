#include "verify/compare.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "job/merge.hpp"
#include "verify/tolerance.hpp"
#include "verify/transcripts.hpp"

namespace diffuse {
namespace {

std::string hex(std::uint64_t value, int digits) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%0*llx", digits, static_cast<unsigned long long>(value));
  return text.data();
}

std::uint32_t bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

std::string shown(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", static_cast<double>(value));
  return std::string(text.data()) + " [" + hex(bits(value), 8) + "]";
}

std::string shown(std::int32_t value) {
  return std::to_string(value);
}

std::string shown(std::byte value) {
  return std::to_string(std::to_integer<int>(value));
}

std::string shown_status(const RequestResult& result) {
  std::string text(name_of(result.status));
  if (!result.message.empty()) text += ": " + shown_safely(result.message);
  return text;
}

std::string shown_shape(const Trace& trace) {
  return std::to_string(trace.layers) + " layers x " + std::to_string(trace.positions) + " positions";
}

// With the rate in full.
std::string shown_shape(const MediaArray& media) {
  std::array<char, 40> rate{};
  std::snprintf(rate.data(), rate.size(), "%.17g", media.rate);
  std::string text = std::string(name_of(media.kind)) + " of " + std::string(name_of(media.element));
  text += " " + std::to_string(media.frames);
  for (const auto size : {media.height, media.width, media.channels}) text += " x " + std::to_string(size);
  return text + ", " + rate.data() + " a second";
}

std::string shown_shape(const LatentArray& latent) {
  return describe(latent);
}

std::string flaw_of(const MediaArray& media) {
  return media_flaw(media);
}

std::string flaw_of(const LatentArray& latent) {
  return latent_flaw(latent);
}

bool same_value(std::int32_t a, std::int32_t b) {
  return a == b;
}
bool same_value(std::byte a, std::byte b) {
  return a == b;
}
bool same_value(float a, float b) {
  return bits(a) == bits(b);
}

// Where two lists differ: the first index and how many. A missing tail differs from any value.
struct Mismatch {
  std::size_t first = 0;
  std::uint64_t count = 0;
};

template <class T>
Mismatch mismatch(std::span<const T> whole, std::span<const T> split) {
  const std::size_t common = std::min(whole.size(), split.size());
  const std::size_t longest = std::max(whole.size(), split.size());
  Mismatch found{.first = longest, .count = longest - common};
  if (found.count > 0) found.first = common;
  for (std::size_t i = common; i-- > 0;) {
    if (same_value(whole[i], split[i])) continue;
    found.first = i;
    ++found.count;
  }
  return found;
}

template <class T>
std::string shown_at(std::span<const T> values, std::size_t index) {
  return index < values.size() ? shown(values[index])
                               : "none (there are " + std::to_string(values.size()) + ")";
}

bool continues_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
}

std::string excerpt(std::string_view text, std::size_t from) {
  constexpr std::size_t kBytes = 32;
  if (from >= text.size()) return "its end";
  std::size_t to = std::min(text.size(), from + kBytes);
  while (to > from + 1 && continues_character(text, to)) --to;
  return shown_safely(text.substr(from, to - from)) + (to < text.size() ? "..." : "");
}

// The order in which values come into being: (position that was computed, stage in it). Stages: the layers'
// digests, the log-probabilities made of the last one, the token drawn from them; what has no position comes
// last.
struct Moment {
  std::int64_t position;
  int stage;
  auto operator<=>(const Moment&) const = default;
};

// More than any prompt has.
constexpr std::int64_t kBehindAll = std::int64_t{1} << 40;

Moment moment_of(const Difference& difference, std::int64_t prompt_tokens) {
  switch (difference.what) {
    case What::digest:
      return {difference.position.value_or(0), 0};
    case What::logprobs:
    case What::top_logprobs:
      return {prompt_tokens + difference.position.value_or(0) - 1, 1};
    case What::tokens:
      return {prompt_tokens + difference.position.value_or(0) - 1, 2};
    default:
      return {std::numeric_limits<std::int64_t>::max(), 0};
  }
}

// Throws bad data, with `refuse`, where a sample's log-probabilities do not have the size that they state.
template <class Refuse>
void check_sizes(const Logprobs& logprobs, const Refuse& refuse) {
  const auto chosen = logprobs.chosen.size();
  const auto top = static_cast<std::uint64_t>(logprobs.top);
  const auto fits = [&](std::size_t held) {
    return chosen == 0 || top == 0 ? held == 0 : held % top == 0 && held / top == chosen;
  };
  if (logprobs.top < 0 || !fits(logprobs.top_ids.size()) || !fits(logprobs.top_values.size()))
    refuse("the log-probabilities do not hold " + std::to_string(logprobs.top) + " best ones a token");
}

// Compares two samples of one request and collects what differs.
class SampleComparer {
 public:
  SampleComparer(std::string request, std::int64_t sample, Counts& counts)
      : request_(std::move(request)), sample_(sample), counts_(counts) {}

  std::vector<Difference> run_across(const Sample& whole, const Sample& split, Across& across) {
    ++counts_.samples;
    for (const auto* sample : {&whole, &split}) {
      check(sample->logprobs);
      if (!sample->logprobs.chosen.empty() && sample->logprobs.chosen.size() != sample->tokens.size())
        refuse("there are " + std::to_string(sample->logprobs.chosen.size()) + " log-probabilities of " +
               std::to_string(sample->tokens.size()) + " tokens");
    }
    const auto equal = across.tokens;
    const auto seen = across.colours + across.latents;
    auto found = compare_across(request_, sample_, whole, split, across);
    counts_.tokens += across.tokens - equal;
    counts_.media += across.colours + across.latents - seen;
    return found;
  }

  std::vector<Difference> run(const Sample& whole, const Sample& split, std::int64_t prompt_tokens) {
    ++counts_.samples;
    digests(whole.trace, split.trace);
    logprobs(whole.logprobs, split.logprobs);
    tokens(whole.tokens, split.tokens);
    if (whole.finish != split.finish) {
      add({.what = What::finish,
           .whole = std::string(name_of(whole.finish)),
           .split = std::string(name_of(split.finish))});
    }
    text(whole.text, split.text);
    if (auto found = transcript_difference(whole.transcript, split.transcript)) add(std::move(*found));
    media(whole.media, split.media);
    latent(whole.latent, split.latent);
    // Codes of sound stand in another order than they were made in, and behind all that they were made of.
    const auto first =
        whole.media || split.media || whole.latent || split.latent ? kBehindAll : prompt_tokens;
    std::stable_sort(found_.begin(), found_.end(), [&](const Difference& a, const Difference& b) {
      return moment_of(a, first) < moment_of(b, first);
    });
    return std::move(found_);
  }

 private:
  void add(Difference difference) {
    difference.request = request_;
    difference.sample = sample_;
    found_.push_back(std::move(difference));
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw_bad_data("request " + shown_safely(request_) + ", sample " + std::to_string(sample_) + ": " +
                   problem);
  }

  void check(const Trace& trace) const {
    const auto held = trace.digests.size();
    const auto layers = static_cast<std::uint64_t>(trace.layers);
    const bool fits =
        trace.layers >= 0 && trace.positions >= 0 &&
        (layers == 0 ? held == 0
                     : held % layers == 0 && held / layers == static_cast<std::uint64_t>(trace.positions));
    if (!fits)
      refuse("the trace holds " + std::to_string(held) + " digests and states " + shown_shape(trace));
  }

  void check(const Logprobs& logprobs) const {
    check_sizes(logprobs, [&](const std::string& problem) { refuse(problem); });
  }

  void digests(const Trace& whole, const Trace& split) {
    check(whole);
    check(split);
    if (whole.layers == 0 && split.layers == 0) return;
    if (whole.layers == 0 || split.layers == 0) {
      const auto side = [](const Trace& trace) { return trace.layers == 0 ? "none" : shown_shape(trace); };
      add({.what = What::missing_trace, .whole = side(whole), .split = side(split)});
      return;
    }
    if (whole.layers != split.layers || whole.positions != split.positions)
      add({.what = What::trace_shape, .whole = shown_shape(whole), .split = shown_shape(split)});

    const auto layers = std::min(whole.layers, split.layers);
    const auto positions = std::min(whole.positions, split.positions);
    const auto cell = [](const Trace& trace, std::int64_t layer, std::int64_t position) {
      return trace.digests[static_cast<std::size_t>(layer * trace.positions + position)];
    };
    counts_.digests += static_cast<std::uint64_t>(layers * positions);
    Difference origin{.what = What::digest, .count = 0};
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (std::int64_t position = 0; position < positions; ++position) {
        if (cell(whole, layer, position) == cell(split, layer, position)) continue;
        ++origin.count;
        // Layers ascend here, so the lowest layer of a position has come first.
        if (origin.position && *origin.position <= position) continue;
        origin.position = position;
        origin.layer = layer;
      }
    }
    if (origin.count == 0) return;
    origin.whole = hex(cell(whole, *origin.layer, *origin.position), 16);
    origin.split = hex(cell(split, *origin.layer, *origin.position), 16);
    add(std::move(origin));
  }

  void tokens(std::span<const std::int32_t> whole, std::span<const std::int32_t> split) {
    counts_.tokens += std::min(whole.size(), split.size());
    values(What::tokens, whole, split);
  }

  template <class T>
  void values(What what, std::span<const T> whole, std::span<const T> split) {
    const auto found = mismatch(whole, split);
    if (found.count == 0) return;
    add({.what = what,
         .position = static_cast<std::int64_t>(found.first),
         .count = found.count,
         .whole = shown_at(whole, found.first),
         .split = shown_at(split, found.first)});
  }

  void logprobs(const Logprobs& whole, const Logprobs& split) {
    check(whole);
    check(split);
    values(What::logprobs, std::span(whole.chosen), std::span(split.chosen));
    // Tokens that one side lacks have been named with the chosen ones.
    const auto common = std::min(whole.chosen.size(), split.chosen.size());
    if (common == 0) return;
    if (whole.top != split.top) {
      add({.what = What::top_logprobs,
           .position = 0,
           .whole = std::to_string(whole.top) + " a token",
           .split = std::to_string(split.top) + " a token"});
      return;
    }
    if (whole.top == 0) return;
    const auto held = common * static_cast<std::size_t>(whole.top);
    const auto whole_ids = std::span(whole.top_ids).first(held),
               split_ids = std::span(split.top_ids).first(held);
    const auto whole_values = std::span(whole.top_values).first(held);
    const auto split_values = std::span(split.top_values).first(held);
    const auto ids = mismatch(whole_ids, split_ids);
    const auto numbers = mismatch(whole_values, split_values);
    if (ids.count + numbers.count == 0) return;
    const auto first = std::min(ids.first, numbers.first);
    const auto entry = [&](std::span<const std::int32_t> all_ids, std::span<const float> all_values) {
      return shown_at(all_ids, first) + " with " + shown_at(all_values, first);
    };
    add({.what = What::top_logprobs,
         .position = static_cast<std::int64_t>(first) / whole.top,
         .count = ids.count + numbers.count,
         .whole = entry(whole_ids, whole_values),
         .split = entry(split_ids, split_values)});
  }

  // Whether both have one, of one shape; a flaw in either is refused.
  template <class Array>
  bool alike(What what, const std::optional<Array>& whole, const std::optional<Array>& split) {
    for (const auto* one : {&whole, &split}) {
      if (!one->has_value()) continue;
      if (const auto flaw = flaw_of(**one); !flaw.empty()) refuse("it holds " + flaw);
    }
    const auto side = [](const std::optional<Array>& one) { return one ? shown_shape(*one) : "none"; };
    if (side(whole) != side(split)) {
      add({.what = what, .whole = side(whole), .split = side(split)});
      return false;
    }
    return whole.has_value();
  }

  void media(const std::optional<MediaArray>& whole, const std::optional<MediaArray>& split) {
    if (!alike(What::media, whole, split)) return;
    counts_.media += whole->elements();
    if (whole->element == MediaElement::f32) {
      values(What::media, std::span<const float>(whole->floats()), std::span<const float>(split->floats()));
    } else {
      values(What::media, std::span(whole->bytes), std::span(split->bytes));
    }
  }

  void latent(const std::optional<LatentArray>& whole, const std::optional<LatentArray>& split) {
    if (!alike(What::latent, whole, split)) return;
    counts_.media += whole->values.size();
    values(What::latent, std::span(whole->values), std::span(split->values));
  }

  void text(const std::string& whole, const std::string& split) {
    if (whole == split) return;
    const std::size_t common = std::min(whole.size(), split.size());
    std::size_t first = 0;
    while (first < common && whole[first] == split[first]) ++first;
    while (first > 0 && (continues_character(whole, first) || continues_character(split, first))) --first;
    add({.what = What::text,
         .position = static_cast<std::int64_t>(first),
         .whole = excerpt(whole, first),
         .split = excerpt(split, first)});
  }

  std::string request_;
  std::int64_t sample_;
  Counts& counts_;
  std::vector<Difference> found_;
};

class ResultComparer {
 public:
  Comparison run(const Result& whole, const Result& split) {
    provenance(whole.provenance, split.provenance);
    const auto pairs = pair_up(whole.requests, split.requests);
    order(whole.requests, split.requests, pairs);
    for (const auto& [w, s] : pairs) request(whole.requests[w], split.requests[s]);
    if (bad_ > 0)
      note(std::to_string(bad_) + " request(s) are bad in both results, each with the same message");
    if (unfinished_ > 0) {
      note(std::to_string(unfinished_) +
           " request(s) are unfinished in both results: only what they hold so far was compared");
    }
    if (out_.across && out_.compared.samples > 0 &&
        out_.across->logprobs + out_.across->colours + out_.across->latents == 0)
      note("no log-probabilities were compared, so only equal tokens count (ask for logprobs)");
    if (!out_.across && out_.compared.samples > 0 && out_.compared.digests == 0)
      note("no digests were compared, so nothing is known about the layers (run with --trace)");
    return std::move(out_);
  }

 private:
  using Requests = std::vector<RequestResult>;
  using Pair = std::pair<std::size_t, std::size_t>;  // index in the whole result, and in the split one

  void note(std::string text) { out_.notes.push_back(std::move(text)); }

  void add(const RequestResult& owner, What what, std::string whole, std::string split) {
    out_.differences.push_back(
        {.request = owner.id, .what = what, .whole = std::move(whole), .split = std::move(split)});
  }

  void provenance(const Json& whole, const Json& split) {
    const auto value = [](const Json& side, std::string_view key) -> std::optional<std::string> {
      if (!side.is_object()) return std::nullopt;
      const auto found = side.find(std::string(key));
      if (found == side.end() || !found->is_string() || found->get<std::string>().empty())
        return std::nullopt;
      return found->get<std::string>();
    };
    for (const auto key : {provenance_key::kJob, provenance_key::kConfig, provenance_key::kTensors}) {
      const auto w = value(whole, key), s = value(split, key);
      if (w && s && *w != *s) {
        throw_bad_data("these two results answer different jobs: " + std::string(key) + " is " +
                       shown_safely(*w) + " in the whole result and " + shown_safely(*s) +
                       " in the split one");
      }
      if (!w || !s) {
        note("the " +
             std::string(!w && !s ? "two results do"
                         : w      ? "split result does"
                                  : "whole result does") +
             " not record " + std::string(key) + ", so that it is the same is not known");
      }
    }
    const auto compute = value(whole, provenance_key::kCompute);
    const bool one_mode =
        compute == value(split, provenance_key::kCompute) && (compute == "f32" || compute == "bf16");
    if (one_mode) {
      out_.across =
          devices(value(whole, provenance_key::kBackend), value(split, provenance_key::kBackend),
                  value(whole, provenance_key::kSimd), value(split, provenance_key::kSimd), *compute);
    }
    if (out_.across) return;
    for (const auto key : {provenance_key::kCompute, provenance_key::kSimd, provenance_key::kCodec}) {
      const auto w = value(whole, key), s = value(split, key);
      if (w == s) continue;
      note(std::string(key) + " differs: " + (w ? shown_safely(*w) : "not recorded") +
           " in the whole result, " + (s ? shown_safely(*s) : "not recorded") +
           " in the split one; the same bits are promised within one only, so this explains differences");
    }
  }

  // The two kinds of device, where there are two: bits are not promised from one to the other.
  static std::optional<Across> devices(const std::optional<std::string>& whole_backend,
                                       const std::optional<std::string>& split_backend,
                                       const std::optional<std::string>& whole_target,
                                       const std::optional<std::string>& split_target,
                                       const std::string& compute) {
    if (!whole_backend || !split_backend) return std::nullopt;
    const bool cards = *whole_backend == *split_backend && *whole_backend != "cpu";
    if (*whole_backend == *split_backend && !(cards && whole_target != split_target)) return std::nullopt;
    return Across{.whole = *whole_backend + ", " + whole_target.value_or("?"),
                  .split = *split_backend + ", " + split_target.value_or("?"),
                  .compute = compute,
                  .allowed = tolerance(DeviceOp::logprob, compute).allowed,
                  .allowed_frame = tolerance(DeviceOp::frame, compute).allowed,
                  .allowed_latent = tolerance(DeviceOp::latent, compute).allowed};
  }

  // By id; where an id stands several times, the first with the first and so on.
  std::vector<Pair> pair_up(const Requests& whole, const Requests& split) {
    std::map<std::string_view, std::vector<std::size_t>> places;
    for (std::size_t s = split.size(); s-- > 0;) places[split[s].id].push_back(s);
    std::vector<Pair> pairs;
    std::vector<bool> used(split.size(), false);
    for (std::size_t w = 0; w < whole.size(); ++w) {
      const auto found = places.find(whole[w].id);
      if (found == places.end() || found->second.empty()) {
        add(whole[w], What::missing_request, shown_status(whole[w]), "none");
        continue;
      }
      pairs.emplace_back(w, found->second.back());
      used[found->second.back()] = true;
      found->second.pop_back();
    }
    for (std::size_t s = 0; s < split.size(); ++s) {
      if (!used[s]) add(split[s], What::extra_request, "none", shown_status(split[s]));
    }
    out_.compared.requests = pairs.size();
    return pairs;
  }

  void order(const Requests& whole, const Requests& split, const std::vector<Pair>& pairs) {
    std::vector<std::size_t> sorted;
    for (const auto& pair : pairs) sorted.push_back(pair.second);
    std::sort(sorted.begin(), sorted.end());
    Difference found{.what = What::order, .count = 0};
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (sorted[i] == pairs[i].second) continue;
      if (found.count++ > 0) continue;
      found.request = whole[pairs[i].first].id;
      found.position = static_cast<std::int64_t>(i);
      found.whole = shown_safely(found.request);
      found.split = shown_safely(split[sorted[i]].id);
    }
    if (found.count > 0) out_.differences.push_back(std::move(found));
  }

  void request(const RequestResult& whole, const RequestResult& split) {
    if (whole.status != split.status) {
      add(whole, What::status, shown_status(whole), shown_status(split));
      return;
    }
    if (whole.message != split.message)
      add(whole, What::message, shown_safely(whole.message), shown_safely(split.message));
    else if (whole.status == Status::bad)
      ++bad_;
    if (whole.status == Status::done) ++out_.compared.answered;
    if (whole.status == Status::unfinished) ++unfinished_;
    if (whole.seed != split.seed)
      add(whole, What::seed, std::to_string(whole.seed), std::to_string(split.seed));

    bool ids_differ = whole.prompt_tokens != split.prompt_tokens;
    if (ids_differ) {
      add(whole, What::prompt_tokens, std::to_string(whole.prompt_tokens),
          std::to_string(split.prompt_tokens));
    }
    if (whole.samples.size() != split.samples.size()) {
      ids_differ = true;
      add(whole, What::sample_count, std::to_string(whole.samples.size()),
          std::to_string(split.samples.size()));
    }
    for (std::size_t i = 0; i < std::min(whole.samples.size(), split.samples.size()); ++i) {
      SampleComparer comparer(whole.id, static_cast<std::int64_t>(i), out_.compared);
      if (out_.across) {
        ids_differ = true;  // they may, so their hash is not held against the other
        auto found = comparer.run_across(whole.samples[i], split.samples[i], *out_.across);
        out_.differences.insert(out_.differences.end(), found.begin(), found.end());
        continue;
      }
      for (auto& difference : comparer.run(whole.samples[i], split.samples[i], whole.prompt_tokens)) {
        ids_differ = ids_differ || difference.what == What::tokens;
        out_.differences.push_back(std::move(difference));
      }
    }
    if (!ids_differ && whole.sha256 != split.sha256)
      add(whole, What::sha256, shown_safely(whole.sha256), shown_safely(split.sha256));
  }

  Comparison out_;
  std::uint64_t bad_ = 0;
  std::uint64_t unfinished_ = 0;
};

}  // namespace

Comparison compare(const Result& whole, const Result& split) {
  return ResultComparer().run(whole, split);
}

}  // namespace diffuse
