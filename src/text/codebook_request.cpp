#include "text/codebook_request.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "text/codebook_sampling.hpp"

namespace diffuse {
namespace {

void refuse(bool asked, const char* name) {
  if (asked)
    throw_bad_data("'" + std::string(name) + "' is of text, and this model answers with codes of sound");
}

void check_options(const GenerateOptions& options) {
  refuse(!options.stop.empty(), "stop");
  refuse(options.length_penalty.value_or(1) != 1, "length_penalty");
  refuse(options.early_stopping.value_or(EarlyStopping::no) != EarlyStopping::no, "early_stopping");
  refuse(options.sampling.repetition_penalty != 1, "repetition_penalty");
  refuse(options.sampling.logprobs >= 0, "logprobs");
  refuse(options.min_length.value_or(0) > 0, "min_length");
  refuse(options.min_new_tokens.value_or(0) > 0, "min_new_tokens");
  refuse(options.no_repeat_ngram_size.value_or(0) > 0, "no_repeat_ngram_size");
  refuse(options.forced_bos_token_id.has_value(), "forced_bos_token_id");
  if (options.num_beams > 1) throw_bad_data("'num_beams' is over 1, and codes of sound have no beam search");
}

void check_padding(const std::optional<std::int32_t>& id, std::int64_t padding, const char* role) {
  if (id && *id != padding) {
    throw_bad_data("the model's configs say that its answers are " + std::string(role) + " with the id " +
                   std::to_string(*id) + ", and the row behind its codes is " + std::to_string(padding));
  }
}

}  // namespace

std::int64_t CodebookRequest::rows() const {
  return is_guided(guidance) ? 2 : 1;
}

CodebookRequest codebook_request(const GenerateOptions& options, const GenerationConfig& generation,
                                 const CodebookShape& shape) {
  check_options(options);
  check_padding(generation.decoder_start_id ? generation.decoder_start_id : generation.bos_id, shape.codes,
                "started");
  check_padding(generation.pad_id, shape.codes, "padded");
  if (options.max_new_tokens == 0) throw_bad_data("'max_new_tokens' is 0, and sound takes at least 1");
  const auto tokens = std::min(options.max_new_tokens, shape.max_positions);
  return {.delay = {shape.codebooks, shape.channels, tokens, static_cast<std::int32_t>(shape.codes)},
          .guidance = options.guidance_scale.value_or(generation.guidance_scale.value_or(1))};
}

}  // namespace diffuse
