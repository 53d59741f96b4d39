#include "text/codebook_sampling.hpp"

#include "core/error.hpp"

namespace diffuse {

void guide(std::span<float> logits, std::span<const float> free, float scale) {
  if (logits.size() != free.size()) throw_internal("guidance joins two rows that are not equally long");
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = free[i] + (logits[i] - free[i]) * scale;
}

std::vector<std::int32_t> sample_codes(std::span<const float> logits, std::int64_t codebooks,
                                       const SamplingParams& params, const SampleKey& key,
                                       SamplingScratch& scratch) {
  const auto count = static_cast<std::size_t>(codebooks);
  if (logits.size() % count != 0) throw_internal("a row of logits is no multiple of its codebooks");
  auto plain = params;
  plain.logprobs = -1;
  const auto each = logits.size() / count;
  std::vector<std::int32_t> ids;
  for (std::size_t codebook = 0; codebook < count; ++codebook) {
    auto own = key;
    own.position = static_cast<std::uint32_t>(key.position * count + codebook);
    ids.push_back(sample_token(logits.subspan(codebook * each, each), plain, {}, own, scratch).id);
  }
  return ids;
}

}  // namespace diffuse
