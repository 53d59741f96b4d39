#include "tests/verify/synthetic.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include "job/merge.hpp"

namespace diffuse::synthetic {
namespace {

constexpr std::array<const char*, 8> kCharacters = {"a", "Z", " ", "\n", "é", "ж", "語", "🙂"};

std::string make_text(Dice& dice, std::int64_t characters) {
  std::string text;
  for (std::int64_t i = 0; i < characters; ++i) text += kCharacters[dice.below(kCharacters.size())];
  return text;
}

float make_logprob(Dice& dice) {
  switch (dice.below(8)) {
    case 0:
      return std::numeric_limits<float>::quiet_NaN();
    case 1:
      return -0.0F;
    case 2:
      return -std::numeric_limits<float>::infinity();
    default:
      return -static_cast<float>(dice.below(1U << 20)) / 65536.0F;
  }
}

double make_time(Dice& dice) {
  return static_cast<double>(dice.below(100000)) / 1000.0;
}

Transcript make_transcript(Dice& dice) {
  Transcript transcript;
  transcript.text = make_text(dice, dice.between(1, 9));
  transcript.language = "en";
  transcript.with_words = true;
  transcript.duration = make_time(dice);
  for (auto count = dice.between(1, 4); count > 0; --count) {
    TranscriptSegment segment;
    segment.start = make_time(dice);
    segment.end = make_time(dice);
    segment.text = make_text(dice, dice.between(1, 9));
    segment.tokens.push_back(static_cast<std::int32_t>(dice.below(50000)));
    segment.avg_logprob = static_cast<double>(make_logprob(dice));
    for (auto words = dice.between(1, 3); words > 0; --words)
      segment.words.push_back({make_text(dice, 2), make_time(dice), make_time(dice), 0.5});
    transcript.segments.push_back(std::move(segment));
  }
  return transcript;
}

Sample make_sample(Dice& dice, std::int64_t prompt_tokens) {
  Sample sample;
  const auto generated = dice.between(1, 12);
  for (std::int64_t i = 0; i < generated; ++i)
    sample.tokens.push_back(static_cast<std::int32_t>(dice.below(50000)));
  sample.text = make_text(dice, dice.between(1, 30));
  sample.finish = dice.below(2) == 0 ? Finish::length : Finish::end_of_text;
  sample.logprobs.top = dice.between(1, 3);
  for (std::int64_t i = 0; i < generated; ++i) {
    sample.logprobs.chosen.push_back(make_logprob(dice));
    for (std::int64_t k = 0; k < sample.logprobs.top; ++k) {
      sample.logprobs.top_ids.push_back(static_cast<std::int32_t>(dice.below(50000)));
      sample.logprobs.top_values.push_back(make_logprob(dice));
    }
  }
  sample.trace.layers = dice.between(2, 9);
  sample.trace.positions = prompt_tokens + generated - 1;
  for (std::int64_t i = 0; i < sample.trace.layers * sample.trace.positions; ++i)
    sample.trace.digests.push_back(dice.bits());
  sample.transcript = make_transcript(dice);
  return sample;
}

// The sample that a mutation strikes.
struct Target {
  RequestResult& request;
  Sample& sample;
  std::int64_t index;
};

Target pick_sample(Result& result, Dice& dice) {
  auto at = dice.below(result.requests.size() - 1);
  if (at >= 1) ++at;  // the second is bad
  auto& request = result.requests[at];
  const auto index = dice.below(request.samples.size());
  return {request, request.samples[index], static_cast<std::int64_t>(index)};
}

std::string hex16(std::uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex;
  text.width(16);
  text.fill('0');
  text << value;
  return text.str();
}

float flipped(float value, std::uint64_t bit) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << bit));
}

std::vector<std::size_t> character_starts(const std::string& text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) starts.push_back(i);
  }
  return starts;
}

// Puts a neighbour in the code table in a character's place: only the last byte differs, so the first
// differing byte may lie inside a character.
Difference replace_character(Sample& sample, Dice& dice) {
  const auto starts = character_starts(sample.text);
  const auto pick = dice.below(starts.size());
  const auto from = starts[pick];
  const auto to = pick + 1 < starts.size() ? starts[pick + 1] : sample.text.size();
  const std::string old = sample.text.substr(from, to - from);
  std::string fresh = old;
  fresh.back() = static_cast<char>(fresh.back() ^ 1);
  sample.text = sample.text.substr(0, from) + fresh + sample.text.substr(to);
  return {.what = What::text, .position = static_cast<std::int64_t>(from)};
}

Difference mutate_sample(Sample& sample, Mutation mutation, Dice& dice) {
  auto& tokens = sample.tokens;
  auto& logprobs = sample.logprobs;
  auto& trace = sample.trace;
  const auto last = static_cast<std::int64_t>(tokens.size()) - 1;
  const auto index = dice.between(0, last);
  const auto at = static_cast<std::size_t>(index);
  const auto top_at = static_cast<std::size_t>(index * logprobs.top + dice.between(0, logprobs.top - 1));
  const auto count_text = [&](std::size_t count) { return "none (there are " + std::to_string(count) + ")"; };
  switch (mutation) {
    case Mutation::token: {
      const auto old = tokens[at];
      tokens[at] ^= 1 << dice.below(16);
      return {.what = What::tokens,
              .position = index,
              .whole = std::to_string(old),
              .split = std::to_string(tokens[at])};
    }
    case Mutation::token_lost: {
      const auto old = tokens.back();
      tokens.pop_back();
      return {.what = What::tokens,
              .position = last,
              .whole = std::to_string(old),
              .split = count_text(tokens.size())};
    }
    case Mutation::token_added:
      tokens.push_back(7);
      return {
          .what = What::tokens, .position = last + 1, .whole = count_text(tokens.size() - 1), .split = "7"};
    case Mutation::text_character:
      return replace_character(sample, dice);
    case Mutation::text_cut: {
      const auto from = character_starts(sample.text).back();
      sample.text.resize(from);
      return {.what = What::text, .position = static_cast<std::int64_t>(from), .split = "its end"};
    }
    case Mutation::text_longer: {
      const auto end = sample.text.size();
      sample.text += "!";
      return {.what = What::text,
              .position = static_cast<std::int64_t>(end),
              .whole = "its end",
              .split = "\"!\""};
    }
    case Mutation::finish: {
      const std::string old = sample.finish == Finish::length ? "length" : "end_of_text";
      sample.finish = Finish::stop_string;
      return {.what = What::finish, .whole = old, .split = "stop_string"};
    }
    case Mutation::logprob_bit:
      logprobs.chosen[at] = flipped(logprobs.chosen[at], dice.below(32));
      return {.what = What::logprobs, .position = index};
    case Mutation::logprob_lost: {
      const auto count = logprobs.chosen.size();
      logprobs = {};
      return {.what = What::logprobs, .position = 0, .count = count, .split = count_text(0)};
    }
    case Mutation::top_id:
      logprobs.top_ids[top_at] ^= 1 << dice.below(16);
      return {.what = What::top_logprobs, .position = index};
    case Mutation::top_value_bit:
      logprobs.top_values[top_at] = flipped(logprobs.top_values[top_at], dice.below(32));
      return {.what = What::top_logprobs, .position = index};
    case Mutation::top_dropped: {
      const auto old = logprobs.top;
      logprobs.top = 0;
      logprobs.top_ids.clear();
      logprobs.top_values.clear();
      return {.what = What::top_logprobs,
              .position = 0,
              .whole = std::to_string(old) + " a token",
              .split = "0 a token"};
    }
    case Mutation::trace_dropped:
      trace = {};
      return {.what = What::missing_trace, .split = "none"};
    case Mutation::trace_cut: {
      --trace.layers;
      trace.digests.resize(static_cast<std::size_t>(trace.layers * trace.positions));
      return {.what = What::trace_shape};
    }
    default: {  // digest_bit
      const auto layer = dice.between(0, trace.layers - 1);
      const auto position = dice.between(0, trace.positions - 1);
      auto& digest = trace.digests[static_cast<std::size_t>(layer * trace.positions + position)];
      const auto old = digest;
      digest ^= std::uint64_t{1} << dice.below(64);
      return {.what = What::digest,
              .position = position,
              .layer = layer,
              .whole = hex16(old),
              .split = hex16(digest)};
    }
  }
}

double flipped(double value, std::uint64_t bit) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << bit));
}

Difference mutate_transcript(std::optional<Transcript>& transcript, Mutation mutation, Dice& dice) {
  Difference expected{.what = What::transcript};
  if (mutation == Mutation::transcript_lost) {
    transcript.reset();
    expected.split = "none";
    return expected;
  }
  if (mutation == Mutation::transcript_duration) {
    transcript->duration = flipped(transcript->duration, dice.below(63));
    return expected;
  }
  auto& segments = transcript->segments;
  const auto at = dice.below(segments.size());
  auto& segment = segments[at];
  expected.position = static_cast<std::int64_t>(at);
  switch (mutation) {
    case Mutation::segment_lost:
      expected.position = static_cast<std::int64_t>(segments.size()) - 1;
      expected.count = 10 + 4 * segments.back().words.size();
      expected.split = "none";
      segments.pop_back();
      break;
    case Mutation::segment_time: {
      auto& time = dice.below(2) == 0 ? segment.start : segment.end;
      time = flipped(time, dice.below(63));  // the last: zero and minus zero
      break;
    }
    case Mutation::segment_token:
      segment.tokens.back() ^= 1 << dice.below(16);
      break;
    case Mutation::segment_figure:
      segment.no_speech_prob = flipped(segment.no_speech_prob, 63);
      break;
    default: {  // word_time
      auto& word = segment.words[dice.below(segment.words.size())];
      word.end = flipped(word.end, dice.below(52));
    }
  }
  return expected;
}

Difference mutate_requests(std::vector<RequestResult>& requests, Mutation mutation, Dice& dice) {
  const auto at = dice.below(requests.size());
  const auto offset = static_cast<std::ptrdiff_t>(at);
  switch (mutation) {
    case Mutation::requests_swapped: {
      const auto first = dice.below(requests.size() - 1);
      const auto second = first + 1 + dice.below(requests.size() - first - 1);
      const std::string before = requests[first].id, after = requests[second].id;
      std::swap(requests[first], requests[second]);
      return {.request = before,
              .what = What::order,
              .position = static_cast<std::int64_t>(first),
              .count = 2,
              .whole = '"' + before + '"',
              .split = '"' + after + '"'};
    }
    case Mutation::request_moved: {  // the first one, to the end
      const std::string before = requests[0].id, after = requests[1].id;
      auto moved = requests.front();
      requests.erase(requests.begin());
      requests.push_back(std::move(moved));
      return {.request = before,
              .what = What::order,
              .position = 0,
              .count = requests.size(),
              .whole = '"' + before + '"',
              .split = '"' + after + '"'};
    }
    case Mutation::request_lost: {
      const std::string id = requests[at].id;
      requests.erase(requests.begin() + offset);
      return {.request = id, .what = What::missing_request, .split = "none"};
    }
    default: {  // request_added
      auto fresh = requests[at];
      fresh.id = "added";
      requests.insert(requests.begin() + offset, std::move(fresh));
      return {.request = "added", .what = What::extra_request, .whole = "none"};
    }
  }
}

}  // namespace

std::uint64_t Dice::bits() {  // SplitMix64
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::uint64_t Dice::below(std::uint64_t limit) {
  return bits() % limit;
}

std::int64_t Dice::between(std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most - least + 1)));
}

Result make_result(std::uint64_t seed) {
  Dice dice(seed);
  Result result;
  const auto count = dice.between(3, 7);
  for (std::int64_t i = 0; i < count; ++i) {
    RequestResult request;
    request.id = "r" + std::to_string(i);
    request.seed = dice.bits();
    request.seconds = static_cast<double>(dice.below(100));
    if (i == 1) {
      request.status = Status::bad;
      request.message = "the prompt is empty";
    } else {
      request.status = Status::done;
      request.prompt_tokens = dice.between(1, 9);  // so every trace has a position to strike
      for (auto n = dice.between(1, 3); n > 0; --n)
        request.samples.push_back(make_sample(dice, request.prompt_tokens));
      request.sha256 = hex16(dice.bits());
    }
    result.requests.push_back(std::move(request));
  }
  result.provenance = {{std::string(provenance_key::kJob), "aa"},
                       {std::string(provenance_key::kConfig), "bb"},
                       {std::string(provenance_key::kTensors), "cc"},
                       {std::string(provenance_key::kCompute), "f32"},
                       {std::string(provenance_key::kSimd), "AVX2"}};
  return result;
}

Counts size_of(const Result& result) {
  Counts counts;
  for (const auto& request : result.requests) {
    ++counts.requests;
    counts.answered += request.status == Status::done ? 1 : 0;
    for (const auto& sample : request.samples) {
      ++counts.samples;
      counts.tokens += sample.tokens.size();
      counts.digests += sample.trace.digests.size();
    }
  }
  return counts;
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all;
  for (int i = 0; i <= static_cast<int>(Mutation::request_added); ++i)
    all.push_back(static_cast<Mutation>(i));
  return all;
}

std::string name_of(Mutation mutation) {
  constexpr std::array<const char*, 33> kNames = {"digest_bit",      "token",
                                                  "token_lost",      "token_added",
                                                  "text_character",  "text_cut",
                                                  "text_longer",     "finish",
                                                  "logprob_bit",     "logprob_lost",
                                                  "top_id",          "top_value_bit",
                                                  "top_dropped",     "trace_dropped",
                                                  "trace_cut",       "sample_added",
                                                  "sample_lost",     "status",
                                                  "message",         "seed",
                                                  "prompt_tokens",   "sha256",
                                                  "transcript_lost", "transcript_duration",
                                                  "segment_lost",    "segment_time",
                                                  "segment_token",   "segment_figure",
                                                  "word_time",       "requests_swapped",
                                                  "request_moved",   "request_lost",
                                                  "request_added"};
  return kNames.at(static_cast<std::size_t>(mutation));
}

Mutated mutate(const Result& original, Mutation mutation, std::uint64_t seed) {
  Dice dice(seed ^ 0x5eedU);
  Mutated out{original, {}};
  if (mutation >= Mutation::requests_swapped) {
    out.expected = mutate_requests(out.result.requests, mutation, dice);
    return out;
  }
  auto [request, sample, index] = pick_sample(out.result, dice);
  const auto count = request.samples.size();
  out.expected.request = request.id;
  const auto expect = [&](What what, std::string whole, std::string split) {
    out.expected.what = what;
    out.expected.whole = std::move(whole);
    out.expected.split = std::move(split);
  };
  switch (mutation) {
    case Mutation::sample_added:
      request.samples.push_back(make_sample(dice, request.prompt_tokens));
      expect(What::sample_count, std::to_string(count), std::to_string(count + 1));
      break;
    case Mutation::sample_lost:
      request.samples.pop_back();
      expect(What::sample_count, std::to_string(count), std::to_string(count - 1));
      break;
    case Mutation::status:
      request.status = Status::unfinished;
      expect(What::status, "done", "unfinished");
      break;
    case Mutation::message: {
      auto& bad = out.result.requests[1];
      bad.message += "!";
      out.expected.request = bad.id;
      expect(What::message, "\"the prompt is empty\"", "\"the prompt is empty!\"");
      break;
    }
    case Mutation::seed: {
      const auto old = request.seed;
      request.seed ^= std::uint64_t{1} << dice.below(64);
      expect(What::seed, std::to_string(old), std::to_string(request.seed));
      break;
    }
    case Mutation::prompt_tokens:
      ++request.prompt_tokens;
      expect(What::prompt_tokens, std::to_string(request.prompt_tokens - 1),
             std::to_string(request.prompt_tokens));
      break;
    case Mutation::sha256: {
      const std::string old = request.sha256;
      request.sha256[5] = request.sha256[5] == '0' ? '1' : '0';
      expect(What::sha256, '"' + old + '"', '"' + request.sha256 + '"');
      break;
    }
    default: {
      const std::string id = request.id;
      out.expected = mutation >= Mutation::transcript_lost
                         ? mutate_transcript(sample.transcript, mutation, dice)
                         : mutate_sample(sample, mutation, dice);
      out.expected.request = id;
      out.expected.sample = index;
    }
  }
  return out;
}

}  // namespace diffuse::synthetic
