#include "text/sampling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kFirstSorted = 64;

using Candidate = std::pair<float, std::int32_t>;

// The one order in which candidates are looked at.
bool before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

[[noreturn]] void broken_row(std::size_t index, float value) {
  throw_internal("the logits of a step are broken (" + std::to_string(value) + " at id " +
                 std::to_string(index) + "): the weights or a kernel are at fault");
}

void fill_candidates(std::span<const float> logits, SamplingScratch& scratch) {
  scratch.candidates.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    scratch.candidates[i] = {logits[i], static_cast<std::int32_t>(i)};
}

// Brings candidates [from, to) to their places in the order, `from` being sorted before.
void sort_until(std::vector<Candidate>& all, std::size_t from, std::size_t to) {
  const auto at = [&](std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
  if (to < all.size()) std::nth_element(at(from), at(to), all.end(), before);
  std::sort(at(from), at(to), before);
}

float highest_of(std::span<const float> logits) {
  return logits[static_cast<std::size_t>(greedy_token(logits))];
}

// What turns logits into log-probabilities.
struct Softmax {
  double highest;
  double log_sum;

  explicit Softmax(std::span<const float> logits) : highest(static_cast<double>(highest_of(logits))) {
    double sum = 0;
    for (const auto logit : logits) sum += exact::exp(static_cast<double>(logit) - highest);
    log_sum = exact::log(sum);
  }
  float logprob(float logit) const {
    return static_cast<float>((static_cast<double>(logit) - highest) - log_sum);
  }
};

// The `count` highest of a row, in order.
std::vector<TokenLogprob> highest(std::span<const float> row, std::int32_t count, SamplingScratch& scratch) {
  fill_candidates(row, scratch);
  const auto wanted = std::min(row.size(), static_cast<std::size_t>(std::max(count, 0)));
  sort_until(scratch.candidates, 0, wanted);
  std::vector<TokenLogprob> top;
  top.reserve(wanted);
  for (std::size_t i = 0; i < wanted; ++i)
    top.push_back({scratch.candidates[i].second, scratch.candidates[i].first});
  return top;
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, const Softmax& softmax, std::int32_t count,
                                    SamplingScratch& scratch) {
  auto top = highest(logits, count, scratch);
  for (auto& token : top) token.logprob = softmax.logprob(token.logprob);
  return top;
}

std::span<const float> penalized(std::span<const float> logits, const SamplingParams& params,
                                 std::span<const std::int32_t> history, SamplingScratch& scratch) {
  if (params.repetition_penalty == 1) return logits;
  scratch.logits.assign(logits.begin(), logits.end());
  penalize_repeats(scratch.logits, history, params.repetition_penalty);
  return scratch.logits;
}

// Walks the candidates in their order and sorts no more of them than it has to.
class Walk {
 public:
  Walk(SamplingScratch& scratch, float highest, double temperature)
      : scratch_(scratch), highest_(static_cast<double>(highest)), temperature_(temperature) {
    scratch.weights.clear();
  }

  void keep_first(std::size_t count) {
    sort_until(scratch_.candidates, 0, count);
    scratch_.candidates.resize(count);
    sorted_ = count;
  }
  std::size_t size() const { return scratch_.candidates.size(); }
  std::int32_t id(std::size_t i) const { return scratch_.candidates[i].second; }
  double weight_of(float logit) const {
    return exact::exp((static_cast<double>(logit) - highest_) / temperature_);
  }
  // exp((logit - highest) / temperature) of the i-th; ask in order.
  double weight(std::size_t i) {
    if (i >= sorted_) {
      const auto until = std::min(size(), std::max(kFirstSorted, 8 * sorted_));
      sort_until(scratch_.candidates, sorted_, until);
      sorted_ = until;
    }
    if (i >= scratch_.weights.size()) scratch_.weights.push_back(weight_of(scratch_.candidates[i].first));
    return scratch_.weights[i];
  }
  double total() const {
    double sum = 0;
    for (const auto& candidate : scratch_.candidates) sum += weight_of(candidate.first);
    return sum;
  }

 private:
  SamplingScratch& scratch_;
  double highest_;
  double temperature_;
  std::size_t sorted_ = 0;
};

std::int32_t draw(std::span<const float> logits, const SamplingParams& params, const SampleKey& key,
                  SamplingScratch& scratch) {
  const auto highest = highest_of(logits);
  fill_candidates(logits, scratch);
  Walk walk(scratch, highest, params.temperature);
  if (params.top_k > 0 && static_cast<std::uint64_t>(params.top_k) < logits.size())
    walk.keep_first(static_cast<std::size_t>(params.top_k));

  double sum = walk.total();
  std::size_t kept = walk.size();
  if (params.top_p < 1 || params.min_p > 0) {
    const double enough = params.top_p < 1 ? params.top_p * sum : std::numeric_limits<double>::infinity();
    sum = 0;
    kept = 0;
    while (kept < walk.size() && sum < enough) {
      const auto weight = walk.weight(kept);
      if (kept > 0 && weight < params.min_p) break;
      sum += weight;
      ++kept;
    }
  }
  const double target = uniform_of(key) * sum;
  double passed = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const auto weight = walk.weight(i);
    if (weight == 0) break;
    passed += weight;
    last = i;
    if (passed > target) break;
  }
  return walk.id(last);
}

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const auto first = std::uint64_t{0xD2511F53U} * counter[0];
    const auto second = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
        static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

}  // namespace

std::int32_t greedy_token(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  std::size_t id = logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    // Not `logit > best`: a NaN has to come in here.
    if (!(logit <= best)) {
      if (std::isnan(logit)) broken_row(i, logit);
      best = logit;
      id = i;
    }
  }
  if (id == logits.size()) throw_internal("the logits of a step are all -infinity, or there are none");
  if (std::isinf(best)) broken_row(id, best);
  return static_cast<std::int32_t>(id);
}

double uniform_of(const SampleKey& key) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
  const auto random = philox({key.position, key.sample, low(key.request), high(key.request)},
                             {low(key.seed), high(key.seed)});
  const auto bits = (std::uint64_t{random[0]} << 32) | random[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void penalize_repeats(std::span<float> logits, std::span<const std::int32_t> history, double penalty) {
  const auto by = static_cast<float>(penalty);
  std::vector<std::uint8_t> seen(logits.size());
  for (const auto id : history) {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index >= logits.size() || seen[index] != 0) continue;
    seen[index] = 1;
    auto& logit = logits[index];
    logit = logit < 0 ? logit * by : logit / by;
  }
}

float token_logprob(std::span<const float> logits, std::int32_t id) {
  if (id < 0 || static_cast<std::size_t>(id) >= logits.size())
    throw_internal("the log-probability of an id outside the row was asked for");
  return Softmax(logits).logprob(logits[static_cast<std::size_t>(id)]);
}

void make_logprobs(std::span<float> logits) {
  const Softmax softmax(logits);
  for (auto& logit : logits) logit = softmax.logprob(logit);
}

std::vector<TokenLogprob> highest_logprobs(std::span<const float> logprobs, std::int32_t count,
                                           SamplingScratch& scratch) {
  return highest(logprobs, count, scratch);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, std::int32_t count,
                                       SamplingScratch& scratch) {
  return likeliest(logits, Softmax(logits), count, scratch);
}

SampledToken sample_token(std::span<const float> logits, const SamplingParams& params,
                          std::span<const std::int32_t> history, const SampleKey& key,
                          SamplingScratch& scratch) {
  SampledToken sampled;
  const auto adjusted = penalized(logits, params, history, scratch);
  sampled.id = params.temperature == 0 ? greedy_token(adjusted) : draw(adjusted, params, key, scratch);
  if (params.logprobs < 0) return sampled;
  const Softmax softmax(logits);
  sampled.logprob = softmax.logprob(logits[static_cast<std::size_t>(sampled.id)]);
  if (params.logprobs > 0) sampled.top = likeliest(logits, softmax, params.logprobs, scratch);
  return sampled;
}

}  // namespace diffuse
