#include "pipeline/prepare.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"
#include "core/thread_pool.hpp"
#include "media/feature_extractor.hpp"
#include "media/log_mel.hpp"
#include "media/resample.hpp"
#include "recipe/sound_features.hpp"
#include "text/codebook_sampling.hpp"
#include "text/generation_notes.hpp"
#include "text/idle_options.hpp"

namespace diffuse {
namespace {

constexpr const char* kNoSound = "this model reads sound, and the request holds none: give it `audio`";

// The ids that the request asks with, and the token that the answer must begin with, if any.
Tokenizer::Source source_of(const Request& request, const TextSide& text) {
  const auto need_tokenizer = [&]() -> const Tokenizer& {
    if (!text.tokenizer)
      throw_bad_data(
          "the model folder has neither tokenizer.json nor a sentencepiece model; give `tokens` instead of "
          "text");
    return *text.tokenizer;
  };
  const auto no_language = [&](const char* kind) {
    if (!request.language.empty() && !request.audio)
      throw_bad_data(std::string("`language` says what to translate a `prompt` into, and it has ") + kind);
  };
  return std::visit(
      Overloaded{
          [&](const Prompt& prompt) {
            // An empty text is still a start where the tokenizer puts a token in front of every text.
            return need_tokenizer().encode_source(prompt.text, request.audio ? "" : request.language);
          },
          [&](const Messages& messages) {
            no_language("`messages`");
            const auto& tokenizer = need_tokenizer();
            if (!text.chat)
              throw_bad_data("the model folder has no chat template; give a `prompt` instead of `messages`");
            ChatOptions options;
            options.special_tokens = tokenizer.special_tokens();
            const auto rendered =
                text.chat->render(parse_ordered_json(messages.value.dump(), "messages"), options);
            // The template wrote the special tokens already.
            return Tokenizer::Source{tokenizer.encode(rendered, false), std::nullopt};
          },
          [&](const Tokens& tokens) {
            no_language("`tokens`");
            return Tokenizer::Source{tokens.ids, std::nullopt};
          },
          [](const NoText&) -> Tokenizer::Source {
            throw_bad_data(
                "it has no text, and this model answers text: give a `prompt`, `messages` or `tokens`");
          },
          [](const Unusable& unusable) -> Tokenizer::Source { throw_bad_data(unusable.why); },
      },
      request.input);
}

void check_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab) {
  for (const auto id : ids) {
    if (id < 0 || id >= vocab) {
      throw_bad_data("the prompt holds the token id " + std::to_string(id) +
                     ", but the model's vocabulary ends at " + std::to_string(vocab - 1));
    }
  }
}

void check_prompt(const PreparedRequest& request, const ModelLimits& limits) {
  if (request.prompt.empty()) {
    throw_bad_data(
        "the prompt is empty, and the tokenizer puts no token in front of a text that the model could go on "
        "from");
  }
  check_ids(request.prompt, limits.vocab);
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length >= limits.max_positions) {
    throw_bad_data("the prompt has " + std::to_string(length) + " tokens, and the model's context of " +
                   std::to_string(limits.max_positions) + " leaves no room for an answer");
  }
}

void check_memory(const PreparedRequest& request, const ModelLimits& limits) {
  auto needed = static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens;
  if (request.memory_rows > 0 || request.options.num_beams > 1)
    needed = pages_needed(need_of(make_sequence(request, 0, 0)), kPageTokens) * kPageTokens;
  if (needed > limits.kv_positions) {
    throw_bad_data("prompt and answer together take " + std::to_string(needed) +
                   " positions of key-value memory, and there is room for " +
                   std::to_string(limits.kv_positions) + "; raise --kv-memory or lower max_new_tokens");
  }
}

// The ids are the encoder's.
void read_source(PreparedRequest& out, std::vector<std::int32_t> ids, const Encoder& encoder) {
  auto input = std::make_shared<EncoderInput>();
  input->ids = std::move(ids);
  if (input->ids.empty()) throw_bad_data("the prompt is empty, and the encoder has nothing to read");
  check_ids(input->ids, encoder.vocab);
  out.memory_rows = memory_rows(encoder, *input);
  if (out.memory_rows > encoder.max_positions) {
    throw_bad_data("the prompt has " + std::to_string(out.memory_rows) +
                   " tokens, and the encoder reads at most " + std::to_string(encoder.max_positions));
  }
  out.input = std::move(input);
}

// The answer starts as the checkpoint says.
std::int32_t start_of_answer(const GenerationConfig& generation) {
  const auto start = generation.decoder_start_id ? generation.decoder_start_id : generation.bos_id;
  if (!start) throw_bad_data("the model's configs say no decoder_start_token_id to start an answer with");
  return *start;
}

// A text to sound.
void ask_for_sound(PreparedRequest& out, const Request& request, const TextSide& text,
                   const ModelLimits& limits) {
  out.codes = codebook_request(out.options, text.generation, *limits.codebooks);
  out.prompt = out.codes->delay.start();
  out.max_new_tokens = out.codes->delay.new_tokens();
  read_source(out, source_of(request, text).ids, *limits.encoder);
  check_memory(out, limits);
}

// Of what the encoder reads, else of the prompt; a recording has no tokens.
void add_source_rules(TokenRules& rules, const PreparedRequest& request, const GenerationConfig& generation) {
  if (request.input && request.input->ids.empty()) return;
  rules.no_repeat_source = static_cast<std::int32_t>(generation.encoder_no_repeat_ngram_size.value_or(0));
  rules.source_penalty = generation.encoder_repetition_penalty.value_or(1);
  if (rules.no_repeat_source > 0 || rules.source_penalty != 1)
    rules.source = request.input ? request.input->ids : request.prompt;
}

// Of prompt and answer. Of min_length and min_new_tokens the latter holds, but a job's own goes before the
// checkpoint's.
std::int64_t least_tokens(const GenerateOptions& options, const GenerationConfig& generation,
                          std::int64_t prompt) {
  const auto behind_prompt = [&](std::int64_t count) { return count > 0 ? prompt + count : 0; };
  if (options.min_new_tokens) return behind_prompt(*options.min_new_tokens);
  if (options.min_length) return *options.min_length;
  if (generation.min_new_tokens) return behind_prompt(*generation.min_new_tokens);
  return generation.min_length.value_or(0);
}

// Where the end is to be ignored, none is forced either.
TokenRules rules_of(const PreparedRequest& request, std::optional<std::int32_t> first,
                    const GenerationConfig& generation) {
  const auto& options = request.options;
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  TokenRules rules;
  rules.most_tokens = prompt + request.max_new_tokens;
  // The checkpoint's own least may be more than a job has room for.
  rules.least_tokens = std::min(least_tokens(options, generation, prompt), rules.most_tokens);
  // The checkpoint's is for answers that begin at once.
  if (!first && prompt == 1) first = generation.forced_bos_id;
  rules.forced_first = options.forced_bos_token_id.value_or(first.value_or(-1));
  if (!options.ignore_eos) rules.forced_last = generation.forced_eos_ids;
  rules.no_repeat = static_cast<std::int32_t>(
      options.no_repeat_ngram_size.value_or(generation.no_repeat_ngram_size.value_or(0)));
  for (const auto& word : generation.bad_words) {
    if (word.size() != 1 || std::ranges::find(generation.eos_ids, word[0]) == generation.eos_ids.end())
      rules.never.push_back(word);  // an end alone is no bad word
  }
  for (const auto id : generation.suppressed) rules.never.push_back({id});
  rules.not_first = generation.not_first;
  add_source_rules(rules, request, generation);
  rules.biases = generation.sequence_bias;
  if (generation.length_decay && !options.ignore_eos) {
    rules.decay_factor = generation.length_decay->factor;
    rules.decay_start = prompt + generation.length_decay->start;
  }
  if (rules.least_tokens > 0 || rules.decay_factor != 1) rules.end_ids = generation.eos_ids;
  if (rules.changes_logits() && options.sampling.repetition_penalty != 1) {
    throw_bad_data(
        "`repetition_penalty` stands beside sequence_bias, encoder_repetition_penalty or "
        "exponential_decay_length_penalty of the model's generation_config.json, and this build does not do "
        "them together; leave it out");
  }
  return rules;
}

// That the rules can be kept. `first`: what the request's language begins an answer with.
void check_rules(const PreparedRequest& request, std::optional<std::int32_t> first, std::int64_t vocab) {
  const auto& options = request.options;
  const auto forced = options.forced_bos_token_id;
  if (forced && first && *forced != *first)
    throw_bad_data("'forced_bos_token_id' is " + std::to_string(*forced) +
                   ", and `language` begins the answer with " + std::to_string(*first) +
                   "; leave one of them out");
  const auto within = [&](std::int32_t id, const char* name) {
    if (id >= vocab)
      throw_bad_data("'" + std::string(name) + "' is " + std::to_string(id) +
                     ", but the model's vocabulary ends at " + std::to_string(vocab - 1));
  };
  within(request.rules.forced_first, "forced_bos_token_id");
  for (const auto id : request.rules.forced_last) within(id, "forced_eos_token_id");
  const auto at_least = [&](std::optional<std::int64_t> least, std::int64_t most, const char* name) {
    if (least.value_or(0) > most)
      throw_bad_data("`" + std::string(name) + "` is " + std::to_string(*least) +
                     ", and `max_new_tokens` or the model's context ends the answer at " +
                     std::to_string(most));
  };
  at_least(options.min_new_tokens, request.max_new_tokens, "min_new_tokens");
  at_least(options.min_length, request.rules.most_tokens, "min_length");
}

bool reads_sound(const ModelLimits& limits) {
  return limits.encoder != nullptr && limits.encoder->vocab == 0;
}

// A window's features for an answer that begins with given tokens.
void read_first_window(PreparedRequest& out, const Encoder& encoder, const std::vector<float>& samples) {
  const auto& front = std::get<FramesFront>(encoder.front);
  ThreadPool alone(1);
  const auto mel = media::LogMel(front.features)(samples, alone);
  auto input = std::make_shared<EncoderInput>();
  input->frames = media::frames_first(media::mel_window(mel, 0, media::kWindowFrames), front.features);
  out.memory_rows = memory_rows(encoder, *input);
  out.input = std::move(input);
}

// Keys that would change nothing are told: who gave them expects otherwise.
void check_speech_keys(const Json& generate, const std::string& what) {
  for (const auto& [key, value] : generate.items()) {
    if (!value.is_null() && !means_something_to_speech(key))
      throw_bad_data(what + ": '" + key + "' has no meaning for a recording; leave it out");
  }
}

// Keys of pictures change nothing here: who gave them expects otherwise. Guidance is of pictures and of
// sound.
void check_no_picture_keys(const Json& generate, const std::string& what, bool guided) {
  constexpr std::array<std::string_view, 7> kKeysOfPictures = {
      "num_inference_steps", "height",     "width", "num_frames", "num_videos_per_prompt",
      "max_sequence_length", "output_type"};
  for (const auto& [key, value] : generate.items()) {
    const bool of_pictures = std::ranges::find(kKeysOfPictures, key) != kKeysOfPictures.end();
    if (!value.is_null() && (of_pictures || (key == "guidance_scale" && !guided)))
      throw_bad_data(what + ": '" + key +
                     "' is of pictures, and this model answers token by token; leave it out");
  }
}

// Why a key of the job's changes nothing for this request; empty where it may.
std::string why_idle_default(const std::string& key, const Json& value, const PreparedRequest& request) {
  if (request.speech) {
    if (!means_something_to_speech(key)) return "`" + key + "` has no meaning for a recording; leave it out";
    return why_idle(key, request.speech->options);
  }
  if (is_speech_key(key) || (key == "temperature" && value.is_array()))
    return "`" + key + "` is a transcript's, and no request of the job asks for one";
  return why_idle(key, request.options);
}

void check_defaults(const Json& defaults, const std::vector<PreparedRequest>& requests) {
  IdleDefaults idle(defaults);
  for (const auto& request : requests) {
    if (!request.problem.empty()) continue;
    idle.see([&](const std::string& key) { return why_idle_default(key, defaults.at(key), request); });
  }
  idle.check("the job's generate");
}

void check_no_picture(const Request& request) {
  if (!request.negative_prompt.empty() || !request.latent.empty())
    throw_bad_data("`negative_prompt` and `latent` are of pictures, and this model answers token by token");
}

void check_token_keys(const Request& request) {
  for (const auto& [key, value] : request.generate.items()) {
    if (!value.is_null() && (is_speech_key(key) || value.is_array()))
      throw_bad_data("generate: '" + key +
                     "' is a transcript's, and `tokens` beside the sound ask for what follows them");
  }
  if (!request.language.empty() || !request.task.empty())
    throw_bad_data(
        "`language` and `task` are a transcript's, and `tokens` beside the sound say them already");
}

// What a job of sound has in common for all requests.
class SpeechSide {
 public:
  SpeechSide(const Job& job, const TextSide& text, const ModelLimits& limits)
      : text_(text), limits_(limits), defaults_(parse_speech_options(job.generate, "the job's generate")) {
    check_alignment_heads(text.generation_json, limits.cross_heads, "generation_config.json");
  }

  void prepare(PreparedRequest& out, const Request& request) {
    if (out.options.n != 1) throw_bad_data("`n` is more than one, and a recording has one transcript");
    check_speech_keys(request.generate, "generate");
    auto speech = std::make_shared<SpeechRequest>();
    auto& options = speech->options;
    options = parse_speech_options(request.generate, "generate", defaults_);
    if (!request.language.empty()) set_language(options, request.language, "the request");
    if (!request.task.empty()) set_task(options, request.task, "the request");
    check_idle(request.generate, options, "generate");
    if (!text_.tokenizer)
      throw_bad_data(
          "the model folder has no tokenizer.json, and a transcript needs one; give `tokens` beside `audio`");
    speech->tokens = tokens();
    speech->text = speech_text(*text_.tokenizer, *speech->tokens, options);
    speech->samples = std::make_shared<const std::vector<float>>(
        media::resample(request.audio->samples, request.audio->rate, media::kSpeechRate));
    const auto& front = std::get<FramesFront>(limits_.encoder->front);
    speech->bins = front.features;
    speech->memory_rows = limits_.encoder->max_positions;
    speech->context = limits_.max_positions;
    check_window(*speech);
    // What the model cannot do is found here, not in the middle of the run.
    static_cast<void>(Transcriber(speech->tokens, options, speech->text, 0, speech->context));
    out.speech = std::move(speech);
  }

 private:
  void check_window(const SpeechRequest& speech) const {
    const auto most = speech.most();
    if (most.most_lanes > kMaxEntries / 2) {
      throw_bad_data("`beam_size` or `best_of` is " + std::to_string(most.most_lanes) + ", and at most " +
                     std::to_string(kMaxEntries / 2) + " run side by side");
    }
    const auto needed = pages_needed(most, kPageTokens) * kPageTokens;
    if (needed > limits_.kv_positions) {
      throw_bad_data("a window with " + std::to_string(most.most_lanes) + " beams or samples takes " +
                     std::to_string(needed) + " positions of key-value memory, and there is room for " +
                     std::to_string(limits_.kv_positions) +
                     "; raise --kv-memory or lower beam_size and best_of");
    }
  }

  std::shared_ptr<const SpeechTokens> tokens() {
    if (!tokens_) {
      if (text_.generation_json.is_null())
        throw_bad_data("the model folder has no generation_config.json to name the tokens of speech");
      tokens_ = std::make_shared<SpeechTokens>(
          parse_speech_tokens(text_.generation_json, limits_.vocab, "generation_config.json"));
    }
    return tokens_;
  }

  const TextSide& text_;
  const ModelLimits& limits_;
  SpeechOptions defaults_;
  std::shared_ptr<const SpeechTokens> tokens_;
};

std::vector<std::int64_t> cross_heads_of(const Recipe& recipe) {
  std::vector<std::int64_t> heads;
  for (const auto& block : recipe.blocks) {
    auto& of = heads.emplace_back(0);
    for (const auto& step : block.steps)
      if (const auto* cross = std::get_if<CrossAttention>(&step)) of = cross->heads;
  }
  return heads;
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
  const auto own = folder / "generation_config.json";
  if (std::filesystem::exists(own)) text.generation_json = read_json(own);
  const auto config = folder / "config.json";
  text.asks_in = text.generation_json.is_null() ? "config.json" : "generation_config.json";
  text.asks = !text.generation_json.is_null()   ? text.generation_json
              : std::filesystem::exists(config) ? read_json(config)
                                                : Json();
  return text;
}

void check_features(const std::filesystem::path& folder, const Recipe& recipe) {
  const auto* const front = recipe.encoder ? std::get_if<FramesFront>(&recipe.encoder->front) : nullptr;
  if (front == nullptr) return;
  if (front->frames != media::kWindowFrames) {
    throw_refused("cannot run yet: its encoder takes " + std::to_string(front->frames) +
                  " frames of features, and this build computes windows of " +
                  std::to_string(media::kWindowFrames));
  }
  const auto read = [&](const char* name) {
    const auto path = folder / name;
    return std::filesystem::exists(path) ? read_json(path) : Json();
  };
  const auto processor = read("processor_config.json");
  if (const auto own = processor.find("feature_extractor"); own != processor.end() && !own->is_null()) {
    media::check_feature_extractor(*own, "'feature_extractor' of processor_config.json", kSoundFeatures,
                                   front->features);
    return;
  }
  const auto own = read("preprocessor_config.json");
  if (!own.is_null())
    media::check_feature_extractor(own, "preprocessor_config.json", kSoundFeatures, front->features);
}

std::vector<std::string> notes_on(const TextSide& text, const ModelLimits& limits) {
  const auto answering = limits.codebooks      ? Answering::sound
                         : reads_sound(limits) ? Answering::transcripts
                                               : Answering::text;
  return generation_notes(text.asks, text.asks_in, answering);
}

ModelLimits limits_of(const Recipe& recipe, std::int64_t kv_positions) {
  ModelLimits limits{.vocab = recipe.vocab,
                     .max_positions = recipe.max_positions,
                     .kv_positions = kv_positions,
                     .encoder = recipe.encoder ? &*recipe.encoder : nullptr,
                     .codebooks = {},
                     .cross_heads = cross_heads_of(recipe)};
  if (recipe.codec) {
    limits.codebooks = {.codebooks = recipe.codebooks,
                        .channels = recipe.codec->passes,
                        .codes = recipe.vocab / recipe.codebooks,
                        .max_positions = recipe.max_positions};
  }
  return limits;
}

void check_speech_config(const Json& generation_config, const Recipe& recipe, const std::string& file) {
  check_alignment_heads(generation_config, cross_heads_of(recipe), file);
  // Without it the folder runs given tokens alone, and the other ids are not asked for.
  if (generation_config.contains("no_timestamps_token_id"))
    static_cast<void>(parse_speech_tokens(generation_config, recipe.vocab, file));
}

SequenceNeed SpeechRequest::most() const {
  const auto any = [&](auto test) { return std::ranges::any_of(options.temperatures, test); };
  const auto cold = any([](double t) { return t == 0; }) ? options.beam_size : 1;
  const auto hot = any([](double t) { return t > 0; }) ? options.best_of : 1;
  return {.prompt_tokens = 1,
          .max_new_tokens = 0,
          .memory_rows = memory_rows,
          .lanes = 1,
          .most_lanes = static_cast<std::int32_t>(std::max(cold, hot)),
          .most_tokens = context};
}

std::int64_t PreparedRequest::prompt_tokens() const {
  return static_cast<std::int64_t>(input && !input->ids.empty() ? input->ids.size() : prompt.size());
}

std::vector<PreparedRequest> prepare(const Job& job, const TextSide& text, const ModelLimits& limits,
                                     const std::vector<std::uint64_t>& seeds) {
  std::optional<SpeechSide> speech;
  if (reads_sound(limits)) speech.emplace(job, text, limits);
  const auto text_keys = [&](const Json& generate) {
    return speech ? without_speech_keys(generate) : generate;
  };
  const auto defaults = parse_generate(text_keys(job.generate), "the job's generate");
  check_no_picture_keys(job.generate, "the job's generate", limits.codebooks.has_value());
  std::vector<PreparedRequest> prepared;
  for (std::size_t index = 0; index < job.requests.size(); ++index) {
    const auto& request = job.requests[index];
    auto& out = prepared.emplace_back();
    out.id = request.id;
    try {
      out.options = parse_generate(text_keys(request.generate), "generate", defaults);
      check_no_picture_keys(request.generate, "generate", limits.codebooks.has_value());
      check_no_picture(request);
      if (speech && !std::holds_alternative<Tokens>(request.input)) {
        if (const auto* unusable = std::get_if<Unusable>(&request.input)) throw_bad_data(unusable->why);
        if (!request.audio) throw_bad_data(kNoSound);
        if (!std::holds_alternative<NoText>(request.input)) {
          throw_bad_data(
              "a text stands beside the sound; what a transcript is to begin with is `prefix` or "
              "`initial_prompt` in `generate`");
        }
        out.seed = index < seeds.size() ? seeds[index] : out.options.seed.value_or(derived_seed(job, index));
        speech->prepare(out, request);
        continue;
      }
      if (request.audio && !speech) throw_bad_data("it holds sound, and this model reads none");
      settle_sampling(out.options, "generate");
      if (limits.codebooks) {
        out.seed = index < seeds.size() ? seeds[index] : out.options.seed.value_or(derived_seed(job, index));
        ask_for_sound(out, request, text, limits);
        check_idle(request.generate, out.options, "generate");
        continue;
      }
      check_autoregressive(out.options, "generate");
      check_idle(request.generate, out.options, "generate");
      if (!out.options.stop.empty() && !text.tokenizer) {
        throw_bad_data("`stop` looks for text, and the model folder has no tokenizer");
      }
      out.seed = index < seeds.size() ? seeds[index] : out.options.seed.value_or(derived_seed(job, index));
      if (limits.encoder == nullptr && !request.language.empty() && !request.audio)
        throw_bad_data("`language` says what to translate into, and this model only goes on with a text");
      auto source = source_of(request, text);
      out.prompt = std::move(source.ids);
      if (speech) {
        if (!request.audio) throw_bad_data(kNoSound);
        check_token_keys(request);
        read_first_window(out, *limits.encoder,
                          media::resample(request.audio->samples, request.audio->rate, media::kSpeechRate));
      } else if (limits.encoder != nullptr) {
        read_source(out, std::exchange(out.prompt, {start_of_answer(text.generation)}), *limits.encoder);
      }
      check_prompt(out, limits);
      out.max_new_tokens = std::min(out.options.max_new_tokens,
                                    limits.max_positions - static_cast<std::int64_t>(out.prompt.size()));
      if (limits.encoder == nullptr && out.options.forced_bos_token_id)
        throw_bad_data(
            "'forced_bos_token_id' begins the answers of a model that reads an encoder; this one goes on "
            "with the prompt");
      out.rules = rules_of(out, source.first, text.generation);
      check_rules(out, source.first, limits.vocab);
      if (out.options.num_beams > 1)
        out.candidates = static_cast<std::int32_t>(beam_options(out, text.generation).candidates());
      check_memory(out, limits);
    } catch (const Error& problem) {
      if (problem.code() == ExitCode::internal) throw;
      out.problem = problem.what();
    }
  }
  check_defaults(job.generate, prepared);
  return prepared;
}

TextBeamOptions beam_options(const PreparedRequest& request, const GenerationConfig& generation) {
  const auto& options = request.options;
  TextBeamOptions beams;
  beams.beams = options.num_beams;
  beams.length_penalty = options.length_penalty.value_or(generation.length_penalty.value_or(1));
  beams.early_stopping =
      options.early_stopping.value_or(generation.early_stopping.value_or(EarlyStopping::no));
  beams.max_new_tokens = request.max_new_tokens;
  if (!options.ignore_eos) beams.end_ids = generation.eos_ids;
  return beams;
}

Sequence make_sequence(const PreparedRequest& request, std::size_t index, std::int32_t sample) {
  Sequence sequence;
  sequence.prompt = request.prompt;
  sequence.max_new_tokens = request.max_new_tokens;
  if (request.input) sequence.input = [input = request.input] { return input; };
  sequence.memory_rows = request.memory_rows;
  if (!request.rules.empty()) sequence.rules = pack_choice(request.rules);
  sequence.sampling.rules = static_cast<std::int32_t>(sequence.rules.size());
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
  sequence.lanes = static_cast<std::int32_t>(request.options.num_beams);
  sequence.sampling.candidates = request.candidates;
  if (request.codes) {
    sequence.sampling.codebooks = static_cast<std::int32_t>(request.codes->delay.codebooks());
    sequence.sampling.logprobs = -1;
    sequence.sampling.guidance = request.codes->guidance;
    sequence.guided = is_guided(request.codes->guidance);
    sequence.lanes = static_cast<std::int32_t>(request.codes->rows());
  }
  return sequence;
}

}  // namespace diffuse
