#include "text/codebook_delay.hpp"

#include <string>

#include "core/error.hpp"

namespace diffuse {

CodebookDelay::CodebookDelay(std::int64_t codebooks, std::int64_t channels, std::int64_t new_tokens,
                             std::int32_t padding)
    : codebooks_(codebooks), channels_(channels), new_tokens_(new_tokens), padding_(padding) {
  const auto delays = codebooks / channels;
  const auto positions = 1 + new_tokens;
  delayed_ = positions >= 2 * delays - 1;
  frames_ = delayed_ ? positions - delays : new_tokens;
}

std::int64_t CodebookDelay::delay(std::int64_t codebook) const {
  return delayed_ ? codebook / channels_ : 0;
}

bool CodebookDelay::is_code(std::int64_t position, std::int64_t codebook) const {
  const auto frame = position - 1 - delay(codebook);
  return frame >= 0 && frame < frames_;
}

std::vector<std::int32_t> CodebookDelay::start() const {
  return std::vector<std::int32_t>(static_cast<std::size_t>(codebooks_), padding_);
}

void CodebookDelay::mask(std::int64_t position, std::span<std::int32_t> ids) const {
  for (std::size_t codebook = 0; codebook < ids.size(); ++codebook) {
    if (!is_code(position, static_cast<std::int64_t>(codebook))) ids[codebook] = padding_;
  }
}

std::vector<std::vector<std::int32_t>> CodebookDelay::undo(std::span<const std::int32_t> ids) const {
  if (ids.size() != static_cast<std::size_t>(new_tokens_ * codebooks_))
    throw_internal("an answer of " + std::to_string(new_tokens_) + " positions of " +
                   std::to_string(codebooks_) + " codebooks has " + std::to_string(ids.size()) + " ids");
  std::vector<std::vector<std::int32_t>> codes(static_cast<std::size_t>(codebooks_));
  for (std::int64_t codebook = 0; codebook < codebooks_; ++codebook) {
    auto& of_codebook = codes[static_cast<std::size_t>(codebook)];
    for (std::int64_t frame = 0; frame < frames_; ++frame)
      of_codebook.push_back(ids[static_cast<std::size_t>((frame + delay(codebook)) * codebooks_ + codebook)]);
  }
  return codes;
}

}  // namespace diffuse
