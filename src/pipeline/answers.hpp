#pragma once
// What rank 0 makes of the tokens that come back: text, sound, ends, stop strings, and finished requests in
// the form of a result.
//
// Sound is made beside the run, in a thread of its own, one sample after the other: while it is, the slices
// go on with what is in flight.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "job/result.hpp"
#include "pipeline/prepare.hpp"
#include "pipeline/recording.hpp"
#include "pipeline/sound_maker.hpp"

namespace diffuse {

// Windows of recordings that are under way, so that a run that is stopped goes on from them.
struct SpeechKeeper {
  std::map<std::uint64_t, KeptWindows> kept = {};  // of an earlier run, by index of the request
  // A window has ended that is not its recording's last.
  std::function<void(std::size_t index, const Recording::Ended& ended)> on_window = {};
};

// Collects the samples of a job. `on_request` is called once for each request when all its samples are done,
// and for bad ones at construction.
class Answers {
 public:
  using OnRequest = std::function<void(std::size_t index, const RequestResult& request)>;

  // `kept` holds requests of an earlier run by index; they are taken over and not run again. `sound` is the
  // codec of a model that answers with its codes, null with another. References must outlive it. Throws bad
  // data where kept windows are not of this job's recordings.
  Answers(const std::vector<PreparedRequest>& prepared, const TextSide& text, std::int64_t trace_layers,
          std::map<std::uint64_t, RequestResult> kept, OnRequest on_request, SoundMaker* sound = nullptr,
          SpeechKeeper keeper = {});
  ~Answers();

  // What is to be run: one a sample. Index in this list is the `sequence` of the events.
  const std::vector<Sequence>& sequences() const { return sequences_; }

  // What the driver tells and asks; `stop` and `progress` are left to the caller.
  DriverEvents events();
  // The heads that the run is to watch, where a request asks when its words were said.
  std::vector<WatchedHead> watched() const;

  // All requests in job order; those that did not end are Status::unfinished and hold no samples. Waits for
  // sound that is being made.
  std::vector<RequestResult> take();

 private:
  struct Running;
  // A sequence that is a pass over a recording's window.
  struct Pass {
    std::size_t recording = 0;
    std::size_t piece = 0;
  };
  struct Searching;
  struct Composing;
  using Part =
      std::variant<std::unique_ptr<Running>, Pass, std::unique_ptr<Searching>, std::unique_ptr<Composing>>;
  struct Heard {
    std::size_t request = 0;
    std::unique_ptr<Recording> recording;
    std::vector<std::optional<std::size_t>> last;  // of each piece: the number of its latest sequence
    std::size_t under_way = 0;                     // passes
    std::optional<std::chrono::steady_clock::time_point> begin;
    bool reported = false;
  };
  Decision search(Searching& searching, std::span<const ChosenToken> chosen);
  void finish_search(Searching& searching, Trace trace);
  Decision compose(Composing& composing, const ChosenToken& chosen);
  void finish_codes(Composing& composing, Trace trace);
  void finish_sounds(bool all);
  void finish_sample(std::size_t request, std::size_t sample, Sample out,
                     std::chrono::steady_clock::time_point begin);
  Decision hear(const Pass& pass, std::span<const ChosenToken> chosen);
  void add_recording(std::size_t index);
  void take_passes(std::size_t recording);
  void leave(const Pass& pass, std::span<const std::uint64_t> digests, std::int64_t positions);
  void report(Heard& heard);
  Decision on_chosen(std::size_t sequence, std::span<const ChosenToken> chosen);
  void on_done(std::size_t sequence, std::vector<std::uint64_t> digests, std::int64_t positions);
  bool take_token(Running& running, const SampledToken& token);  // true: it has ended
  void end(Running& running, Finish finish);
  void complete(std::size_t request);

  const std::vector<PreparedRequest>& prepared_;
  const Tokenizer* tokenizer_;  // null: texts stay empty
  const GenerationConfig& generation_;
  std::int64_t trace_layers_;
  OnRequest on_request_;
  SpeechKeeper keeper_;
  std::vector<Sequence> sequences_;
  std::vector<Part> parts_;  // [sequence]
  std::vector<Heard> recordings_;
  std::vector<Sequence> more_;              // that came up
  std::vector<RequestResult> results_;      // [request]
  std::vector<std::int64_t> open_samples_;  // [request]
  SoundMaker* sound_;
  std::deque<Composing*> silent_;   // whose codes are complete and sound is not, in order; parts_ owns them
  std::future<MediaArray> making_;  // of the first of them; destroyed first, for it uses what they hold
};

}  // namespace diffuse
