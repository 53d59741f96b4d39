#include "text/speech_transcriber.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/speech_window.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kFramesAColumn = 2;
constexpr std::int32_t kTimestampsASecond = 50;
constexpr std::int64_t kLatestTimestamp = 3000;  // frames from a window's begin, however short it is

// The stretches to write down, in frames. Behaviour: openai-whisper's `clip_timestamps`.
std::vector<std::pair<std::int64_t, std::int64_t>> clips_of(const std::vector<double>& seconds,
                                                            std::int64_t frames) {
  std::vector<std::pair<std::int64_t, std::int64_t>> clips;
  for (std::size_t i = 0; i < seconds.size(); i += 2) {
    const auto end = i + 1 < seconds.size() ? std::llround(seconds[i + 1] * kFramesASecond) : frames;
    clips.emplace_back(std::llround(seconds[i] * kFramesASecond), std::min<std::int64_t>(end, frames));
  }
  if (clips.empty()) clips.emplace_back(0, frames);
  return clips;
}

// When the last word of these segments ends; where there are no words, the last segment. At least one.
double end_of(std::span<const TranscriptSegment> segments) {
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment)
    if (!segment->words.empty()) return segment->words.back().end;
  return segments.back().end;
}

}  // namespace

SpeechText speech_text(const Tokenizer& tokenizer, const SpeechTokens& tokens, const SpeechOptions& options) {
  const auto encode = [&](const std::string& text) {
    const auto bare = stripped(text);
    if (bare.empty()) return std::vector<std::int32_t>();
    auto ids = tokenizer.encode(" " + std::string(bare), false);
    std::erase_if(ids, [&](std::int32_t id) { return id >= tokens.end; });
    return ids;
  };
  return {[tokenizer](std::span<const std::int32_t> ids) { return tokenizer.decode(ids, false); },
          options.initial_tokens.empty() ? encode(options.initial_prompt) : options.initial_tokens,
          encode(options.prefix), encode(options.hotwords)};
}

Transcriber::Transcriber(std::shared_ptr<const SpeechTokens> tokens, SpeechOptions options, SpeechText text,
                         std::int64_t frames, std::int64_t context)
    : tokens_(std::move(tokens)),
      options_(std::move(options)),
      text_(std::move(text)),
      frames_(frames),
      context_(context),
      clips_(clips_of(options_.clips, frames)),
      seek_(clips_.front().first),
      history_(text_.initial_prompt) {
  if (!tokens_->multilingual()) {
    const bool english = options_.language.empty() || options_.language == "en";
    if (!english || options_.task == SpeechTask::translate || options_.multilingual ||
        options_.language_windows > 1)
      throw_bad_data(
          "this model knows English alone: leave `language`, `task`, `multilingual` and "
          "`language_detection_segments` out");
  } else if (!options_.language.empty()) {
    const auto id = tokens_->language_id(options_.language);
    if (!id) throw_bad_data("this model does not know the language '" + options_.language + "'");
    language_ = *id;
  }
  if (std::ranges::any_of(options_.initial_tokens, [&](std::int32_t id) { return id >= tokens_->end; }))
    throw_bad_data("`initial_prompt` holds ids that are no text of this model");
  for (const auto id : options_.suppress_tokens.value_or(std::vector<std::int32_t>()))
    if (id >= tokens_->vocab)
      throw_bad_data("`suppress_tokens` holds the id " + std::to_string(id) +
                     ", but the model's vocabulary ends at " + std::to_string(tokens_->vocab - 1));
  if (options_.word_timestamps && tokens_->alignment_heads.empty())
    throw_bad_data("`word_timestamps` needs the alignment heads, and generation_config.json names none");
  transcript_.language = tokens_->multilingual() ? options_.language : "en";
  transcript_.language_probability = transcript_.language.empty() ? 0 : 1;
  transcript_.with_words = options_.word_timestamps;
  transcript_.duration = seconds(frames_);
  begin_window();
}

template <typename Step>
void Transcriber::expect() const {
  if (!std::holds_alternative<Step>(step_))
    throw_internal("a recording got the answer to a step that it had not asked for");
}

void Transcriber::begin_window() {
  while (clip_ < clips_.size() && std::max(seek_, clips_[clip_].first) >= clips_[clip_].second) {
    ++clip_;
    if (clip_ < clips_.size()) seek_ = clips_[clip_].first;
  }
  if (clip_ == clips_.size()) return finish();
  seek_ = std::max(seek_, clips_[clip_].first);
  window_ = {};
  window_.frames = std::min({window_frames(), frames_ - seek_, clips_[clip_].second - seek_});
  const bool unknown = tokens_->multilingual() && (language_ < 0 || options_.multilingual);
  if (!unknown) return decode();
  vote_.emplace(language_ < 0 ? options_.language_windows : 1, options_.language_threshold);
  step_ = DetectStep{seek_, window_.frames};
}

void Transcriber::detected(const LanguageGuess& guess) {
  expect<DetectStep>();
  const bool enough = vote_->add(guess);
  const auto next = seek_ + static_cast<std::int64_t>(vote_->asked()) * window_frames();
  if (enough || next >= frames_) return settle(vote_->result());
  step_ = DetectStep{next, std::min(window_frames(), frames_ - next)};
}

void Transcriber::settle(const LanguageGuess& guess) {
  expect<DetectStep>();
  vote_.reset();
  language_ = guess.id;
  if (transcript_.language.empty()) {
    transcript_.language = tokens_->language_of(guess.id);
    transcript_.language_probability = guess.probability;
  }
  decode();
}

SpeechRules Transcriber::rules() const {
  SpeechRules rules;
  rules.timestamps = !options_.without_timestamps;
  rules.suppress_first = options_.suppress_blank;
  const auto& latest = options_.max_initial_timestamp;
  if (!latest) {
    rules.max_initial_timestamp = tokens_->max_initial_timestamp.value_or(kTimestampsASecond);
  } else if (std::isfinite(*latest)) {
    rules.max_initial_timestamp = static_cast<std::int32_t>(std::llround(*latest * kTimestampsASecond));
  }
  rules.suppress = suppressed();
  rules.repetition_penalty = options_.repetition_penalty;
  rules.no_repeat_ngram = options_.no_repeat_ngram_size;
  return rules;
}

// The checkpoint's list, or the user's and what no text may hold.
std::vector<std::int32_t> Transcriber::suppressed() const {
  if (!options_.suppress_tokens) return tokens_->suppress;
  auto ids = *options_.suppress_tokens;
  if (std::erase(ids, -1) > 0) ids.insert(ids.end(), tokens_->suppress.begin(), tokens_->suppress.end());
  const auto language_model = tokens_->previous - 1;  // <|startoflm|>
  for (const auto id : {tokens_->start, tokens_->translate, tokens_->transcribe, language_model,
                        tokens_->previous, tokens_->no_speech})
    if (id > tokens_->end) ids.push_back(id);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// What is shown in front of the window.
std::vector<std::int32_t> Transcriber::previous() const {
  const auto& initial = text_.initial_prompt;
  const std::size_t from =
      options_.carry_initial_prompt ? std::max(initial.size(), shown_from_) : shown_from_;
  std::span<const std::int32_t> said = std::span(history_).subspan(from);
  if (!options_.carry_initial_prompt) return {said.begin(), said.end()};
  const auto taken = initial.size() + text_.hotwords.size();
  const auto room = prompt_room(context_);
  said = said.last(std::min(said.size(), room - std::min(room, taken)));
  auto shown = initial;
  shown.insert(shown.end(), said.begin(), said.end());
  return shown;
}

void Transcriber::decode() {
  PromptParts parts;
  const auto earlier = previous();
  parts.previous = earlier;
  parts.hotwords = text_.hotwords;
  if (seek_ == 0) parts.prefix = text_.prefix;
  parts.language = language_;
  parts.task = options_.task;
  parts.timestamps = !options_.without_timestamps;

  DecodeStep step;
  step.seek = seek_;
  step.frames = window_.frames;
  step.prompt = window_prompt(*tokens_, parts, context_);
  step.rules = rules();
  step.temperature = options_.temperatures[window_.attempt];
  step.attempt = static_cast<std::int64_t>(window_.attempt);
  if (step.temperature == 0) {
    step.beams = options_.beam_size;
  } else {
    step.samples = options_.best_of;
  }
  const auto room = context_ - static_cast<std::int64_t>(step.prompt.tokens.size());
  if (room < 1) throw_bad_data("the model's context leaves no room for an answer behind the prompt");
  step.max_new_tokens = std::min(options_.max_new_tokens.value_or(room), room);
  step_ = std::move(step);
}

std::vector<std::int32_t> Transcriber::text_of(std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> text;
  for (const auto id : ids)
    if (id < tokens_->end) text.push_back(id);
  return text;
}

void Transcriber::decoded(const DecodedWindow& window) {
  expect<DecodeStep>();
  window_.cut = window_.cut || window.cut;
  WindowScores scores;
  scores.avg_logprob = average_logprob(window.logprob, window.chosen.size());
  scores.compression_ratio = compression_ratio(stripped(text_.decode(text_of(window.chosen))));
  scores.no_speech_prob = window.no_speech_prob;
  const bool last = window_.attempt + 1 == options_.temperatures.size();
  switch (judge(scores, options_.limits, last)) {
    case WindowVerdict::retry:
      ++window_.attempt;
      return decode();
    case WindowVerdict::silent:
      return end_window(seek_ + window_.frames, false);
    case WindowVerdict::keep:
      return keep(window, scores);
  }
}

void Transcriber::keep(const DecodedWindow& window, const WindowScores& scores) {
  const auto cut = cut_window(window.chosen, *tokens_, window_.frames);
  window_.to_the_end = cut.to_the_end;
  window_.advance = cut.advance;
  window_.temperature = options_.temperatures[window_.attempt];
  const std::span chosen(window.chosen);
  const auto said = chosen.first(cut.said);
  window_.said.assign(said.begin(), said.end());
  std::vector<std::int32_t> text;
  for (const auto& part : cut.segments) {
    const auto ids = chosen.subspan(part.first, part.last - part.first);
    TranscriptSegment segment;
    segment.seek = seek_;
    segment.start = seconds(seek_) + part.start;
    segment.end = seconds(seek_) + part.end;
    segment.tokens.assign(ids.begin(), ids.end());
    segment.text = text_.decode(text_of(ids));
    segment.language = tokens_->language_of(language_);
    segment.temperature = window_.temperature;
    segment.avg_logprob = scores.avg_logprob;
    segment.compression_ratio = scores.compression_ratio;
    segment.no_speech_prob = scores.no_speech_prob;
    const auto words = text_of(ids);
    text.insert(text.end(), words.begin(), words.end());
    window_.segments.push_back(std::move(segment));
  }
  if (!options_.word_timestamps) return finish_window();

  AlignStep step;
  step.seek = seek_;
  step.frames = window_.frames;
  step.tokens.reserve(text.size() + 5);
  step.tokens.push_back(tokens_->start);
  if (tokens_->multilingual()) {
    step.tokens.push_back(language_);
    step.tokens.push_back(options_.task == SpeechTask::translate ? tokens_->translate : tokens_->transcribe);
  }
  step.front = step.tokens.size();
  step.tokens.push_back(tokens_->no_timestamps);
  step.tokens.insert(step.tokens.end(), text.begin(), text.end());
  step.tokens.push_back(tokens_->end);
  step.text = text.size();
  // Without text there is nothing to lay beside time; nor can more than the decoder takes at once be.
  if (text.empty() || static_cast<std::int64_t>(step.tokens.size()) > context_) return finish_window();
  step_ = std::move(step);
}

void Transcriber::aligned(const WordAttention& attention, std::span<const double> probabilities) {
  expect<AlignStep>();
  const auto& step = std::get<AlignStep>(step_);
  const auto starts = token_starts(attention, std::max<std::int64_t>(step.frames / kFramesAColumn, 1),
                                   static_cast<std::int64_t>(step.front), 1);
  const auto text = std::span(step.tokens).subspan(step.front + 1, step.text);
  auto words =
      timed_words(text, starts, probabilities, *tokens_, tokens_->language_of(language_), text_.decode);
  place_words(window_.segments, std::move(words), *tokens_, last_speech_, options_.words);
  finish_window();
}

void Transcriber::finish_window() {
  std::int64_t next = seek_ + window_.advance;
  if (options_.word_timestamps) {
    const double end = end_of(window_.segments);
    const bool ends_early = !window_.to_the_end && end > seconds(seek_);
    if (ends_early) next = std::llround(end * kFramesASecond);
    if (const auto threshold = options_.hallucination_silence_threshold) {
      const WindowPlace place{.begin = seconds(seek_),
                              .end = seconds(seek_ + window_.frames),
                              .whole_end = seconds(seek_ + window_frames()),
                              .recording_end = seconds(frames_)};
      if (ends_early && place.whole_end - end <= *threshold) next = seek_ + window_.frames;
      const auto skipped = skip_silence(window_.segments, place, last_speech_, *threshold);
      if (skipped.nothing) {
        window_.said.clear();
        window_.segments.clear();
        next = seek_ + std::llround((*skipped.next - place.begin) * kFramesASecond);
        return end_window(next > seek_ ? next : seek_ + window_.frames, false);
      }
      if (skipped.next) {
        next = std::llround(*skipped.next * kFramesASecond);
        window_.segments.resize(skipped.keep);
        window_.said.clear();
        for (const auto& segment : window_.segments)
          window_.said.insert(window_.said.end(), segment.tokens.begin(), segment.tokens.end());
      }
    }
    if (!window_.segments.empty()) last_speech_ = end_of(window_.segments);
  }
  for (auto& segment : window_.segments) {
    if (segment.start == segment.end || stripped(segment.text).empty()) {
      segment.text.clear();
      segment.tokens.clear();
      segment.words.clear();
    }
  }
  end_window(
      next > seek_ ? next : seek_ + window_.frames,
      !options_.condition_on_previous_text || window_.temperature > options_.prompt_reset_on_temperature);
}

void Transcriber::end_window(std::int64_t next, bool forget) {
  ended_ = TranscriptWindow{.next = next,
                            .clip = static_cast<std::int64_t>(clip_),
                            .language = std::string(tokens_->language_of(language_)),
                            .language_probability = transcript_.language_probability,
                            .forget = forget,
                            .cut = window_.cut,
                            .last_speech = last_speech_,
                            .said = std::move(window_.said),
                            .segments = std::move(window_.segments)};
  take_in(*ended_);
  begin_window();
}

void Transcriber::take_in(const TranscriptWindow& window) {
  if (transcript_.language.empty()) {
    transcript_.language = window.language;
    transcript_.language_probability = window.language_probability;
  }
  for (const auto& segment : window.segments) {
    history_.insert(history_.end(), segment.tokens.begin(), segment.tokens.end());
    transcript_.segments.push_back(segment);
  }
  said_.insert(said_.end(), window.said.begin(), window.said.end());
  if (window.forget) shown_from_ = history_.size();
  cut_ = cut_ || window.cut;
  last_speech_ = window.last_speech;
  seek_ = window.next;
  clip_ = static_cast<std::size_t>(window.clip);
}

// What a window says is shown to the model again: an id that it does not have must not get there.
void Transcriber::check(const TranscriptWindow& window) const {
  const auto known = [&](const std::vector<std::int32_t>& ids) {
    return std::ranges::all_of(ids, [&](std::int32_t id) { return id >= 0 && id < tokens_->vocab; });
  };
  const bool later_clip = window.clip > static_cast<std::int64_t>(clip_);
  const bool forward = window.clip >= static_cast<std::int64_t>(clip_) &&
                       window.clip < static_cast<std::int64_t>(clips_.size()) &&
                       (later_clip || window.next > seek_) && window.next >= 0 &&
                       window.next <= frames_ + kLatestTimestamp;
  const bool language = !tokens_->multilingual() || tokens_->language_id(window.language);
  // A time is a number, and lies where sound can be.
  const auto time = [&](double value) { return value >= 0 && value <= seconds(frames_ + kLatestTimestamp); };
  const auto sound = [&](const TranscriptSegment& segment) {
    return known(segment.tokens) && time(segment.start) && time(segment.end) &&
           std::ranges::all_of(
               segment.words, [&](const TranscriptWord& word) { return time(word.start) && time(word.end); });
  };
  // A soft-max in floats may come to a little more than one.
  const bool probable = window.language_probability >= 0 && window.language_probability <= 1.001;
  if (!forward || !language || !probable || !time(window.last_speech) || !known(window.said) ||
      !std::ranges::all_of(window.segments, sound))
    throw_bad_data("what was kept of a window that ends at " + std::to_string(seconds(window.next)) +
                   " s is not this recording's");
}

void Transcriber::resume(std::span<const TranscriptWindow> windows) {
  for (const auto& window : windows) {
    check(window);
    take_in(window);
    language_ = tokens_->language_id(window.language).value_or(-1);
  }
  if (!windows.empty()) begin_window();
}

void Transcriber::finish() {
  const auto said = std::span(history_).subspan(text_.initial_prompt.size());
  transcript_.text = text_.decode(text_of(said));
  step_ = DoneStep{};
}

void move_times(Transcript& transcript, const std::function<double(double time, bool ends)>& original) {
  for (auto& segment : transcript.segments) {
    segment.start = original(segment.start, false);
    segment.end = original(segment.end, true);
    for (auto& word : segment.words) {
      word.start = original(word.start, false);
      word.end = original(word.end, true);
    }
  }
}

void append_piece(Transcript& whole, const Transcript& piece) {
  if (whole.segments.empty() && whole.language.empty()) {
    whole.language = piece.language;
    whole.language_probability = piece.language_probability;
  }
  whole.with_words = whole.with_words || piece.with_words;
  whole.text += piece.text;
  whole.segments.insert(whole.segments.end(), piece.segments.begin(), piece.segments.end());
}

}  // namespace diffuse
