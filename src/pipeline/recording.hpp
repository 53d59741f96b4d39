#pragma once
// A recording on its way through the model: what its windows ask for, as sequences, and what the answers make
// of it. Several windows are under way at once only where they do not depend on each other: pieces between
// silences.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/transcript.hpp"
#include "media/voice_activity.hpp"
#include "pipeline/driver.hpp"
#include "pipeline/prepare.hpp"
#include "text/speech_beams.hpp"
#include "text/speech_transcriber.hpp"

namespace diffuse {

class Recording {
 public:
  // A pass over a window: a sequence, and the piece of the recording that it is of.
  struct Pass {
    std::size_t piece = 0;
    Sequence sequence;
    bool same_window = false;  // as the piece's pass before it, which has just ended
  };

  // A window that has ended, the `number`th of its piece.
  struct Ended {
    std::size_t piece = 0;
    std::size_t number = 0;
    TranscriptWindow window;
  };
  // `index` of the request in the job; `request` is kept. `kept`: windows that an earlier run had finished.
  // Throws bad data where they cannot be of this recording.
  Recording(std::shared_ptr<const SpeechRequest> request, std::size_t index, std::uint64_t seed,
            const KeptWindows& kept = {});
  ~Recording();

  // Passes that are due now: at first those of all pieces, later those that an answer has made due.
  std::vector<Pass> take_passes();
  // Windows that have ended since the last call.
  std::vector<Ended> take_ended();

  // Answers to the piece's pass.
  Decision on_chosen(std::size_t piece, std::span<const ChosenToken> chosen);
  void on_watched(std::size_t piece, const Watched& watched);
  // Digests of a pass that has left: [layers][positions].
  void on_left(std::size_t piece, std::span<const std::uint64_t> digests, std::int64_t positions);

  bool done() const;    // every piece is
  bool cut() const;     // a window had no room for all that it would have said
  bool broken() const;  // a row of logits was not finite: nothing more is due
  // Once done: what was said, and every token that counts as said; the digests of all passes.
  Transcript transcript() const;
  std::vector<std::int32_t> said() const;
  Trace trace(std::int64_t layers) const;

 private:
  struct Piece;
  void add_piece(std::vector<float> samples, std::int64_t first_sample);
  void go_on_from(const KeptWindows& kept);
  void plan_first_passes();
  void settle(const LanguageGuess& guess, std::optional<std::size_t> listened);
  std::size_t next_listener(std::size_t from) const;
  void on_language(std::size_t piece, const LanguageGuess& guess);
  void plan_pass(std::size_t piece, std::optional<std::int64_t> window_before);
  Sequence sequence_of(std::size_t piece, const SpeechStep& step);
  Decision on_beams(Piece& piece, std::span<const ChosenToken> chosen);
  Decision on_samples(Piece& piece, std::span<const ChosenToken> chosen);
  void finish_decode(std::size_t piece);

  std::shared_ptr<const SpeechRequest> request_;
  std::size_t index_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::optional<media::Condensed> condensed_;  // where silence was left out of one piece
  std::optional<LanguageVote> vote_;           // while pieces are listened to for their language
  std::vector<Pass> passes_;                   // due
  std::vector<Ended> ended_;
  bool broken_ = false;
};

}  // namespace diffuse
