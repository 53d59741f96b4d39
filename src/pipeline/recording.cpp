#include "pipeline/recording.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"
#include "core/thread_pool.hpp"
#include "media/log_mel.hpp"

namespace diffuse {
namespace {

// The features of a piece, computed when its first window is encoded: a job may hold thousands of recordings.
class Features {
 public:
  Features(std::vector<float> samples, std::int64_t bins)
      : samples_(std::move(samples)),
        frames_(static_cast<std::int64_t>(samples_.size()) / media::kMelHop),
        bins_(bins) {}

  std::shared_ptr<const EncoderInput> window(std::int64_t seek, std::int64_t frames) {
    if (!mel_) {
      ThreadPool alone(1);
      mel_ = media::LogMel(bins_)(samples_, alone);
      samples_ = {};
    }
    // A recording that fits one window was filled up with silence before its features were computed, as in
    // transformers; later windows are filled up with zeros.
    if (mel_->frames == media::kWindowFrames && seek + frames == frames_)
      frames = media::kWindowFrames - seek;
    auto input = std::make_shared<EncoderInput>();
    input->frames = media::frames_first(media::mel_window(*mel_, seek, frames), bins_);
    return input;
  }

 private:
  std::vector<float> samples_;  // at 16 kHz
  std::int64_t frames_;
  std::int64_t bins_;
  std::optional<media::MelFrames> mel_;
};

std::int64_t window_of(const SpeechStep& step) {
  return std::visit(
      Overloaded{[](const DoneStep&) { return std::int64_t{-1}; }, [](const auto& due) { return due.seek; }},
      step);
}

// Windows and attempts draw from streams of their own.
std::uint64_t stream_of(std::uint64_t seed, std::size_t piece, const DecodeStep& step) {
  const std::array<std::uint64_t, 3> key = {piece, static_cast<std::uint64_t>(step.seek),
                                            static_cast<std::uint64_t>(step.attempt)};
  return digest64(std::as_bytes(std::span(key)), seed);
}

media::VoiceActivity voice_of(const VoiceLimits& limits) {
  constexpr double kMilliseconds = 1000;
  media::VoiceActivity voice;
  if (limits.min_silence) voice.min_silence = *limits.min_silence / kMilliseconds;
  if (limits.min_speech) voice.min_speech = *limits.min_speech / kMilliseconds;
  if (limits.padding) voice.padding = *limits.padding / kMilliseconds;
  if (limits.quietest_db) voice.quietest_db = *limits.quietest_db;
  return voice;
}

// Begins and ends in turn, in seconds -> samples of the recording.
std::vector<media::Stretch> stretches_of(const std::vector<double>& clips, std::int64_t samples) {
  const auto at = [&](double seconds) {
    return std::min(samples, static_cast<std::int64_t>(seconds * static_cast<double>(media::kSpeechRate)));
  };
  std::vector<media::Stretch> stretches;
  for (std::size_t i = 0; i < clips.size(); i += 2) {
    const media::Stretch clip{at(clips[i]), i + 1 < clips.size() ? at(clips[i + 1]) : samples};
    if (clip.begin < clip.end) stretches.push_back(clip);
  }
  return stretches;
}

}  // namespace

struct Recording::Piece {
  Piece(const SpeechRequest& request, const SpeechOptions& options, std::vector<float> sound,
        std::int64_t first)
      : first_sample(first),
        transcriber(request.tokens, options, request.text,
                    static_cast<std::int64_t>(sound.size()) / media::kMelHop, request.context),
        features(std::make_shared<Features>(std::move(sound), request.bins)) {}

  std::int64_t first_sample;  // in the recording
  Transcriber transcriber;
  std::shared_ptr<Features> features;
  // Of the pass that is under way.
  std::int64_t steps = 0;
  std::optional<BeamSearch> beams;
  std::vector<ScoredTokens> samples;  // a lane each
  std::vector<std::uint8_t> ended;    // a lane each
  double no_speech = 0;
  bool cut = false;
  std::size_t windows = 0;  // that have ended
  // [pass][layer][position], and of each pass how many positions.
  std::vector<std::vector<std::uint64_t>> digests;
  std::vector<std::int64_t> positions;
};

Recording::Recording(std::shared_ptr<const SpeechRequest> request, std::size_t index, std::uint64_t seed,
                     const KeptWindows& kept)
    : request_(std::move(request)), index_(index), seed_(seed) {
  const auto& samples = *request_->samples;
  const auto& options = request_->options;
  if (options.batched) {
    const auto stretches =
        options.clips.empty()
            ? media::pieces_of(samples, media::speech_stretches(samples, voice_of(options.vad)),
                               options.chunk_length * media::kSpeechRate)
            : stretches_of(options.clips, static_cast<std::int64_t>(samples.size()));
    for (const auto& [begin, end] : stretches)
      add_piece({samples.begin() + begin, samples.begin() + end}, begin);
  } else if (options.vad_filter && options.clips.empty()) {
    condensed_.emplace(samples, media::speech_stretches(samples, voice_of(options.vad)));
    add_piece(condensed_->samples(), 0);
  } else {
    add_piece(samples, 0);
  }
  go_on_from(kept);
  plan_first_passes();
}

Recording::~Recording() = default;

void Recording::add_piece(std::vector<float> samples, std::int64_t first_sample) {
  auto options = request_->options;
  if (options.batched) options.clips.clear();
  pieces_.push_back(std::make_unique<Piece>(*request_, options, std::move(samples), first_sample));
}

// Pieces have one language, unless each window is to have its own: the first of them tell it.
void Recording::plan_first_passes() {
  const auto& options = request_->options;
  const auto first = next_listener(0);
  if (!options.batched || options.multilingual || first == pieces_.size()) {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) plan_pass(piece, std::nullopt);
    return;
  }
  const auto known = std::ranges::find_if(
      pieces_, [](const auto& piece) { return !piece->transcriber.transcript().language.empty(); });
  if (known == pieces_.end()) {
    vote_.emplace(options.language_windows, options.language_threshold);
    return plan_pass(first, std::nullopt);
  }
  const auto& transcript = (*known)->transcriber.transcript();
  settle({.id = request_->tokens->language_id(transcript.language).value_or(-1),
          .probability = transcript.language_probability,
          .all = {}},
         std::nullopt);
}

// All pieces begin in this language, the one whose window has just been listened to in the same window.
void Recording::settle(const LanguageGuess& guess, std::optional<std::size_t> listened) {
  vote_.reset();
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    auto& transcriber = pieces_[piece]->transcriber;
    std::optional<std::int64_t> before;
    if (piece == listened) before = window_of(transcriber.step());
    if (std::holds_alternative<DetectStep>(transcriber.step())) transcriber.settle(guess);
    plan_pass(piece, before);
  }
}

void Recording::on_language(std::size_t piece, const LanguageGuess& guess) {
  auto& transcriber = pieces_[piece]->transcriber;
  if (!vote_) {
    const auto window = window_of(transcriber.step());
    transcriber.detected(guess);
    return plan_pass(piece, window);
  }
  const auto next = next_listener(piece + 1);
  if (vote_->add(guess) || next == pieces_.size()) return settle(vote_->result(), piece);
  plan_pass(next, std::nullopt);
}

// The first piece from this one on that asks for its language; pieces_.size() where none does.
std::size_t Recording::next_listener(std::size_t from) const {
  while (from < pieces_.size() && !std::holds_alternative<DetectStep>(pieces_[from]->transcriber.step()))
    ++from;
  return from;
}

void Recording::go_on_from(const KeptWindows& kept) {
  for (const auto& [number, windows] : kept) {
    if (number >= pieces_.size())
      throw_bad_data("there is no piece " + std::to_string(number) + " in this recording");
    auto& piece = *pieces_[number];
    piece.transcriber.resume(windows);
    piece.windows = windows.size();
  }
}

std::vector<Recording::Pass> Recording::take_passes() {
  return std::exchange(passes_, {});
}

std::vector<Recording::Ended> Recording::take_ended() {
  return std::exchange(ended_, {});
}

// What the piece asks for next; `window_before` is where the pass before it read, if it has just ended.
void Recording::plan_pass(std::size_t piece, std::optional<std::int64_t> window_before) {
  auto& state = *pieces_[piece];
  if (auto window = state.transcriber.take_window())
    ended_.push_back({piece, state.windows++, std::move(*window)});
  const auto& step = state.transcriber.step();
  state.steps = 0;
  state.cut = false;
  state.beams.reset();
  state.samples.clear();
  state.ended.clear();
  if (std::holds_alternative<DoneStep>(step)) {
    state.features.reset();
    return;
  }
  Pass pass;
  pass.piece = piece;
  pass.sequence = sequence_of(piece, step);
  pass.same_window = window_before == window_of(step);
  passes_.push_back(std::move(pass));
}

Sequence Recording::sequence_of(std::size_t piece, const SpeechStep& step) {
  auto& state = *pieces_[piece];
  const auto& tokens = *request_->tokens;
  Sequence sequence;
  ChoiceRules rules;
  std::visit(Overloaded{
                 [&](const DetectStep&) {
                   sequence.prompt = {tokens.start};
                   sequence.max_new_tokens = 1;
                   sequence.sampling.logprobs = 0;
                   OneOf languages;
                   for (const auto& language : tokens.languages) languages.ids.push_back(language.id);
                   rules = std::move(languages);
                 },
                 [&](const DecodeStep& decode) {
                   sequence.prompt = decode.prompt.tokens;
                   sequence.max_new_tokens = decode.max_new_tokens;
                   sequence.sampling.temperature = decode.temperature;
                   sequence.sampling.seed = stream_of(seed_, piece, decode);
                   sequence.sampling.logprobs = 0;
                   if (tokens.no_speech >= 0) {
                     sequence.sampling.probe_position = static_cast<std::int32_t>(decode.prompt.start);
                     sequence.sampling.probe_token = tokens.no_speech;
                   }
                   sequence.lanes = static_cast<std::int32_t>(std::max(decode.beams, decode.samples));
                   if (decode.beams > 1) {
                     sequence.sampling.candidates = static_cast<std::int32_t>(decode.beams) + 1;
                     state.beams.emplace(decode.beams, request_->options.patience, tokens.end);
                   } else {
                     state.samples.resize(static_cast<std::size_t>(sequence.lanes));
                     state.ended.resize(static_cast<std::size_t>(sequence.lanes));
                   }
                   rules = SpeechChoice{decode.rules, tokens};
                 },
                 [&](const AlignStep& align) {
                   sequence.prompt = align.tokens;
                   sequence.sampling.watched_ids = tokens.end;
                 },
                 [](const DoneStep&) {},
             },
             step);
  sequence.rules = pack_choice(rules);
  sequence.sampling.rules = static_cast<std::int32_t>(sequence.rules.size());
  sequence.sampling.request = static_cast<std::int64_t>(index_);
  sequence.memory_rows = request_->memory_rows;
  const auto seek = window_of(step);
  const auto frames = std::visit(
      Overloaded{[](const DoneStep&) { return std::int64_t{0}; }, [](const auto& due) { return due.frames; }},
      step);
  sequence.input = [features = state.features, seek, frames] { return features->window(seek, frames); };
  const auto most = request_->most();
  sequence.most_lanes = most.most_lanes;
  sequence.most_tokens = most.most_tokens;
  return sequence;
}

Decision Recording::on_chosen(std::size_t piece, std::span<const ChosenToken> chosen) {
  auto& state = *pieces_[piece];
  const auto& step = state.transcriber.step();
  broken_ =
      broken_ || std::ranges::any_of(chosen, [](const ChosenToken& each) { return each.token.id == -1; });
  if (broken_) return {.ended = true};
  if (std::holds_alternative<DetectStep>(step)) {
    const auto& token = chosen.front().token;
    on_language(piece,
                {.id = token.id, .probability = exact::exp(static_cast<double>(token.logprob)), .all = {}});
    return {.ended = true};
  }
  const auto& decode = std::get<DecodeStep>(step);
  if (state.steps++ == 0) state.no_speech = static_cast<double>(chosen.front().probe);
  auto decision = state.beams ? on_beams(state, chosen) : on_samples(state, chosen);
  if (!decision.ended && state.steps == decode.max_new_tokens) {
    state.cut = true;
    decision.ended = true;
  }
  if (decision.ended) finish_decode(piece);
  return decision;
}

Decision Recording::on_beams(Piece& piece, std::span<const ChosenToken> chosen) {
  auto& beams = *piece.beams;
  std::vector<std::vector<TokenLogprob>> likeliest;
  for (const auto& row : chosen.first(beams.rows())) likeliest.push_back(row.token.top);
  const auto sources = beams.advance(likeliest);
  if (beams.finished() || sources.empty()) return {.ended = true};
  std::vector<std::int32_t> tokens;
  for (const auto& beam : beams.live()) tokens.push_back(beam.tokens.back());
  return go_on(tokens, sources, request_->options.beam_size);
}

Decision Recording::on_samples(Piece& piece, std::span<const ChosenToken> chosen) {
  const auto end = request_->tokens->end;
  const bool first = piece.steps == 1;
  Decision decision;
  for (std::size_t lane = 0; lane < chosen.size(); ++lane) {
    const auto& token = chosen[lane].token;
    if (piece.ended[lane] == 0) {
      auto& sample = piece.samples[lane];
      sample.logprob += static_cast<double>(token.logprob);
      const bool last = token.id == end || token.id == kNothingLeft;
      piece.ended[lane] = last ? 1 : 0;
      if (!last) sample.tokens.push_back(token.id);
    }
    decision.lanes.push_back(
        {token.id == kNothingLeft ? end : token.id, first ? 0 : static_cast<std::int32_t>(lane)});
  }
  decision.ended = std::ranges::all_of(piece.ended, [](auto ended) { return ended != 0; });
  return decision;
}

void Recording::finish_decode(std::size_t piece) {
  auto& state = *pieces_[piece];
  const auto window = window_of(state.transcriber.step());
  auto candidates = state.beams ? state.beams->candidates() : std::move(state.samples);
  const auto best = best_of(candidates, request_->options.length_penalty);
  state.transcriber.decoded({.chosen = std::move(candidates[best].tokens),
                             .logprob = candidates[best].logprob,
                             .no_speech_prob = state.no_speech,
                             .cut = state.cut});
  plan_pass(piece, window);
}

void Recording::on_watched(std::size_t piece, const Watched& watched) {
  auto& state = *pieces_[piece];
  const auto& step = std::get<AlignStep>(state.transcriber.step());
  const auto heads = static_cast<std::int64_t>(request_->tokens->alignment_heads.size());
  std::vector<double> probabilities;
  for (std::size_t i = 0; i < step.text; ++i)
    probabilities.push_back(static_cast<double>(watched.likely[step.front + 1 + i]));
  state.transcriber.aligned({.weights = watched.weights,
                             .heads = heads,
                             .rows = static_cast<std::int64_t>(step.tokens.size()),
                             .columns = request_->memory_rows},
                            probabilities);
  plan_pass(piece, std::nullopt);
}

void Recording::on_left(std::size_t piece, std::span<const std::uint64_t> digests, std::int64_t positions) {
  if (digests.empty()) return;
  auto& state = *pieces_[piece];
  state.digests.emplace_back(digests.begin(), digests.end());
  state.positions.push_back(positions);
}

bool Recording::done() const {
  return !broken_ &&
         std::ranges::all_of(pieces_, [](const auto& piece) { return piece->transcriber.done(); });
}

bool Recording::cut() const {
  return std::ranges::any_of(pieces_, [](const auto& piece) { return piece->transcriber.cut(); });
}

bool Recording::broken() const {
  return broken_;
}

Transcript Recording::transcript() const {
  const auto rate = static_cast<double>(media::kSpeechRate);
  Transcript whole;
  whole.with_words = request_->options.word_timestamps;
  for (const auto& piece : pieces_) {
    auto part = piece->transcriber.transcript();
    if (condensed_) {
      move_times(part, [&](double time, bool ends) { return condensed_->original(time, ends); });
    } else if (piece->first_sample > 0) {
      const double begin = static_cast<double>(piece->first_sample) / rate;
      move_times(part, [&](double time, bool) { return begin + time; });
    }
    append_piece(whole, part);
  }
  whole.duration = static_cast<double>(request_->samples->size()) / rate;
  return whole;
}

std::vector<std::int32_t> Recording::said() const {
  std::vector<std::int32_t> all;
  for (const auto& piece : pieces_) {
    const auto& part = piece->transcriber.said();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Trace Recording::trace(std::int64_t layers) const {
  Trace trace;
  trace.layers = layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const auto& piece : pieces_) {
      for (std::size_t pass = 0; pass < piece->digests.size(); ++pass) {
        const auto count = piece->positions[pass];
        const auto from = piece->digests[pass].begin() + layer * count;
        trace.digests.insert(trace.digests.end(), from, from + count);
      }
    }
  }
  if (layers > 0) trace.positions = static_cast<std::int64_t>(trace.digests.size()) / layers;
  return trace;
}

}  // namespace diffuse
