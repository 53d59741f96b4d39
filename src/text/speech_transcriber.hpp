#pragma once
// One recording, window by window: what to compute next, and what becomes of the answer. A pure state machine
// without a model, so that a pipeline can decode the windows of many recordings in batches.
//
// Behaviour: openai-whisper's transcribe(): windows of 30 s that begin where the last timestamp ended,
// earlier text in front, temperatures one after the other until a window is good enough, silence left out.
// faster-whisper's where a language is found by several windows.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/transcript.hpp"
#include "text/speech_options.hpp"
#include "text/speech_rules.hpp"
#include "text/speech_silence.hpp"
#include "text/speech_tokens.hpp"
#include "text/speech_vote.hpp"
#include "text/speech_words.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {

// The tokenizer's part, as values and a function.
struct SpeechText {
  DecodeTokens decode;
  std::vector<std::int32_t> initial_prompt;
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> hotwords;
};
// `options`' texts as tokens, with a space in front and without special tokens; keeps a copy of the
// tokenizer.
SpeechText speech_text(const Tokenizer& tokenizer, const SpeechTokens& tokens, const SpeechOptions& options);

// Frames are 10 ms of log-mel; a window is frames [seek, seek + frames) of the recording, filled up to 3000.
struct DetectStep {  // a window to find the language by: the logits behind <|startoftranscript|> alone ->
                     // detect_language -> detected()
  std::int64_t seek = 0;
  std::int64_t frames = 0;
};
struct DecodeStep {  // choose tokens until the end or `max_new_tokens` -> decoded()
  std::int64_t seek = 0;
  std::int64_t frames = 0;
  WindowPrompt prompt;
  SpeechRules rules;
  double temperature = 0;
  std::int64_t attempt = 0;  // how many temperatures were tried on this window before: part of the random key
  std::int64_t beams = 1;    // at temperature 0: 1 is greedy, more a BeamSearch
  std::int64_t samples = 1;  // at other temperatures: so many, of which best_of() is taken
  std::int64_t max_new_tokens = 0;
};
struct AlignStep {  // one pass over `tokens`, with the alignment heads' cross-attention -> aligned()
  std::int64_t seek = 0;
  std::int64_t frames = 0;
  std::vector<std::int32_t> tokens;  // start, language, task, <|notimestamps|>, text, end
  std::size_t front = 0;             // tokens before <|notimestamps|>
  std::size_t text = 0;              // how many are text: row front + i of the logits tells of text token i
};
struct DoneStep {};
using SpeechStep = std::variant<DetectStep, DecodeStep, AlignStep, DoneStep>;

struct DecodedWindow {
  std::vector<std::int32_t> chosen;  // behind the prompt, without the end
  double logprob = 0;                // sum over them and the end, of the rows that the rules were applied to
  double no_speech_prob = 0;         // token_probability(logits at prompt.start, no_speech)
  bool cut = false;                  // there was no room for more
};

class Transcriber {
 public:
  // `frames` of the recording's features; `context`: the decoder's positions. Throws bad data where the
  // options ask for a language or a task that the model does not have, or for words without alignment heads.
  Transcriber(std::shared_ptr<const SpeechTokens> tokens, SpeechOptions options, SpeechText text,
              std::int64_t frames, std::int64_t context);

  // Goes on behind windows that an earlier run had finished, in their order; before any answer. Throws bad
  // data where they cannot be this recording's.
  void resume(std::span<const TranscriptWindow> windows);
  // What the window that has just ended added, once.
  std::optional<TranscriptWindow> take_window() { return std::exchange(ended_, std::nullopt); }

  const SpeechStep& step() const { return step_; }
  bool done() const { return std::holds_alternative<DoneStep>(step_); }

  // The answer to the step of that kind; throws internal where another one is due.
  void detected(const LanguageGuess& guess);
  // The same with what is settled already: a recording that is cut into pieces has one language.
  void settle(const LanguageGuess& guess);
  void decoded(const DecodedWindow& window);
  // `probabilities` of the text tokens among all text: token_probability(row.first(end), id).
  void aligned(const WordAttention& attention, std::span<const double> probabilities);

  // So far; all of it once done.
  const Transcript& transcript() const { return transcript_; }
  // Every token that counts as said, timestamps among them, window after window: transformers' sequence.
  const std::vector<std::int32_t>& said() const { return said_; }
  bool cut() const { return cut_; }  // a window had no room for all that it would have said

 private:
  struct Window {  // the one that is being worked on
    std::int64_t frames = 0;
    std::size_t attempt = 0;
    bool to_the_end = false;
    std::int64_t advance = 0;
    double temperature = 0;
    bool cut = false;
    std::vector<std::int32_t> said;
    std::vector<TranscriptSegment> segments;
  };

  void begin_window();
  void decode();
  void keep(const DecodedWindow& window, const WindowScores& scores);
  void finish_window();
  void end_window(std::int64_t next, bool forget);
  void check(const TranscriptWindow& window) const;
  void take_in(const TranscriptWindow& window);
  void finish();
  template <typename Step>
  void expect() const;
  double seconds(std::int64_t frame) const { return static_cast<double>(frame) / 100; }
  std::int64_t window_frames() const { return options_.chunk_length * 100; }
  std::vector<std::int32_t> previous() const;
  std::vector<std::int32_t> text_of(std::span<const std::int32_t> ids) const;
  SpeechRules rules() const;
  std::vector<std::int32_t> suppressed() const;

  std::shared_ptr<const SpeechTokens> tokens_;
  SpeechOptions options_;
  SpeechText text_;
  std::int64_t frames_;
  std::int64_t context_;
  std::vector<std::pair<std::int64_t, std::int64_t>> clips_;  // frames
  std::size_t clip_ = 0;
  std::optional<LanguageVote> vote_;  // while the language is looked for
  SpeechStep step_ = DoneStep{};
  std::int64_t seek_ = 0;
  std::int32_t language_ = -1;
  std::vector<std::int32_t> history_;  // the initial prompt and what was said
  std::size_t shown_from_ = 0;         // earlier text is shown from here on
  double last_speech_ = 0;
  Window window_;
  Transcript transcript_;
  std::vector<std::int32_t> said_;
  bool cut_ = false;
  std::optional<TranscriptWindow> ended_;
};

// Moves a transcript's times: of a recording without its silences, or of a piece of one. `ends` is true for
// the end of a segment or a word.
void move_times(Transcript& transcript, const std::function<double(double time, bool ends)>& original);
// Puts a piece's segments behind those of the pieces before it; its times are moved already.
void append_piece(Transcript& whole, const Transcript& piece);

}  // namespace diffuse
