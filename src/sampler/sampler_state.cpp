#include "sampler/sampler_state.hpp"

#include <cstring>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::uint64_t kMark = 0x31'45'54'41'54'53'53'44;  // "DSSTATE1"
constexpr std::uint64_t kMostEarlier = 16;

struct Header {
  std::uint64_t mark = kMark;
  std::uint64_t steps = 0;
  std::uint64_t elements = 0;
  std::uint64_t earlier = 0;
  std::uint64_t has_sample = 0;
};

std::vector<float> cut(const std::vector<float>& from, std::size_t first, std::size_t count) {
  if (first > from.size() || count > from.size() - first)
    throw_internal("cutting a scheduler's state at elements that it does not have");
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

std::vector<std::byte> to_bytes(const SamplerState& state) {
  const auto elements = !state.sample.empty()    ? state.sample.size()
                        : !state.earlier.empty() ? state.earlier.front().size()
                                                 : 0;
  const Header header = {kMark, state.steps, elements, state.earlier.size(), state.sample.empty() ? 0U : 1U};
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  const auto append = [&](const std::vector<float>& values) {
    const auto raw = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  for (const auto& each : state.earlier) append(each);
  append(state.sample);
  return bytes;
}

SamplerState sampler_state_of(std::span<const std::byte> bytes) {
  const auto require = [](bool holds) {
    if (!holds) throw_bad_data("a kept scheduler's state is damaged, or of another version");
  };
  Header header;
  require(bytes.size() >= sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  require(header.mark == kMark && header.has_sample <= 1 && header.earlier <= kMostEarlier);
  const auto arrays = header.earlier + header.has_sample;
  require(header.elements <= bytes.size() && bytes.size() == arrays * header.elements * sizeof(float));
  const auto take = [&] {
    std::vector<float> values(header.elements);
    const auto size = values.size() * sizeof(float);
    if (size > 0) std::memcpy(values.data(), bytes.data(), size);
    bytes = bytes.subspan(size);
    return values;
  };
  SamplerState state;
  state.steps = header.steps;
  for (std::uint64_t i = 0; i < header.earlier; ++i) state.earlier.push_back(take());
  if (header.has_sample == 1) state.sample = take();
  return state;
}

SamplerState cut_state(const SamplerState& state, std::size_t first, std::size_t count) {
  SamplerState part;
  part.steps = state.steps;
  for (const auto& each : state.earlier) part.earlier.push_back(cut(each, first, count));
  if (!state.sample.empty()) part.sample = cut(state.sample, first, count);
  return part;
}

SamplerState join_states(std::span<const SamplerState> parts) {
  SamplerState whole;
  if (parts.empty()) return whole;
  whole.steps = parts.front().steps;
  whole.earlier.resize(parts.front().earlier.size());
  for (const auto& part : parts) {
    if (part.steps != whole.steps || part.earlier.size() != whole.earlier.size() ||
        part.sample.empty() != parts.front().sample.empty())
      throw_internal("joining parts of a scheduler's state that have not done the same steps");
    for (std::size_t i = 0; i < whole.earlier.size(); ++i)
      whole.earlier[i].insert(whole.earlier[i].end(), part.earlier[i].begin(), part.earlier[i].end());
    whole.sample.insert(whole.sample.end(), part.sample.begin(), part.sample.end());
  }
  return whole;
}

}  // namespace diffuse
