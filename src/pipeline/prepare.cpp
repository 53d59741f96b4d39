#include "pipeline/prepare.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"

namespace diffuse {
namespace {

std::vector<std::int32_t> ids_of(const Request& request, const TextSide& text) {
  const auto need_tokenizer = [&]() -> const Tokenizer& {
    if (!text.tokenizer)
      throw_bad_data("the model folder has no tokenizer.json; give `tokens` instead of text");
    return *text.tokenizer;
  };
  return std::visit(
      Overloaded{
          [&](const Prompt& prompt) {
            // An empty text is still a start where the tokenizer puts a token in front of every text.
            return need_tokenizer().encode(prompt.text, true);
          },
          [&](const Messages& messages) {
            const auto& tokenizer = need_tokenizer();
            if (!text.chat)
              throw_bad_data("the model folder has no chat template; give a `prompt` instead of `messages`");
            ChatOptions options;
            options.special_tokens = tokenizer.special_tokens();
            const auto rendered =
                text.chat->render(parse_ordered_json(messages.value.dump(), "messages"), options);
            return tokenizer.encode(rendered, false);  // the template wrote the special tokens already
          },
          [](const Tokens& tokens) { return tokens.ids; },
          [](const Unusable& unusable) -> std::vector<std::int32_t> { throw_bad_data(unusable.why); },
      },
      request.input);
}

void check_prompt(const PreparedRequest& request, const ModelLimits& limits) {
  if (request.prompt.empty()) {
    throw_bad_data(
        "the prompt is empty, and the tokenizer puts no token in front of a text that the model could go on "
        "from");
  }
  for (const auto id : request.prompt) {
    if (id < 0 || id >= limits.vocab) {
      throw_bad_data("the prompt holds the token id " + std::to_string(id) +
                     ", but the model's vocabulary ends at " + std::to_string(limits.vocab - 1));
    }
  }
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length >= limits.max_positions) {
    throw_bad_data("the prompt has " + std::to_string(length) + " tokens, and the model's context of " +
                   std::to_string(limits.max_positions) + " leaves no room for an answer");
  }
}

void check_memory(const PreparedRequest& request, const ModelLimits& limits) {
  const auto needed = static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens;
  if (needed > limits.kv_positions) {
    throw_bad_data("prompt and answer together take " + std::to_string(needed) +
                   " positions of key-value memory, and there is room for " +
                   std::to_string(limits.kv_positions) + "; raise --kv-memory or lower max_new_tokens");
  }
}

std::uint64_t derived_seed(const Job& job, std::size_t index) {
  const auto bytes = std::as_bytes(std::span(job.sha256));
  return digest64(bytes, index);
}

}  // namespace

TextSide TextSide::open(const std::filesystem::path& folder) {
  TextSide text;
  if (Tokenizer::present(folder)) {
    text.tokenizer = Tokenizer::load(folder);
    text.chat = ChatTemplate::find(folder);
  }
  text.generation = read_generation_config(folder);
  return text;
}

std::vector<PreparedRequest> prepare(const Job& job, const TextSide& text, const ModelLimits& limits,
                                     const std::vector<std::uint64_t>& seeds) {
  const auto defaults = parse_generate(job.generate, "the job's generate");
  std::vector<PreparedRequest> prepared;
  for (std::size_t index = 0; index < job.requests.size(); ++index) {
    const auto& request = job.requests[index];
    auto& out = prepared.emplace_back();
    out.id = request.id;
    try {
      out.options = parse_generate(request.generate, "generate", defaults);
      check_autoregressive(out.options, "generate");
      if (!out.options.stop.empty() && !text.tokenizer) {
        throw_bad_data("`stop` looks for text, and the model folder has no tokenizer.json");
      }
      out.seed = index < seeds.size() ? seeds[index] : out.options.seed.value_or(derived_seed(job, index));
      out.prompt = ids_of(request, text);
      check_prompt(out, limits);
      out.max_new_tokens = std::min(out.options.max_new_tokens,
                                    limits.max_positions - static_cast<std::int64_t>(out.prompt.size()));
      check_memory(out, limits);
    } catch (const Error& problem) {
      if (problem.code() == ExitCode::internal) throw;
      out.problem = problem.what();
    }
  }
  return prepared;
}

Sequence make_sequence(const PreparedRequest& request, std::size_t index, std::int32_t sample) {
  Sequence sequence{request.prompt, request.max_new_tokens, {}};
  const auto& params = request.options.sampling;
  sequence.sampling.temperature = params.temperature;
  sequence.sampling.top_p = params.top_p;
  sequence.sampling.min_p = params.min_p;
  sequence.sampling.repetition_penalty = params.repetition_penalty;
  sequence.sampling.seed = request.seed;
  sequence.sampling.request = static_cast<std::int64_t>(index);
  sequence.sampling.sample = sample;
  sequence.sampling.top_k = static_cast<std::int32_t>(std::min<std::int64_t>(params.top_k, 1 << 30));
  sequence.sampling.logprobs = params.logprobs;
  return sequence;
}

}  // namespace diffuse
