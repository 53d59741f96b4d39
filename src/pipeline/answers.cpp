#include "pipeline/answers.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"

namespace diffuse {

struct Answers::Running {
  std::size_t request = 0;
  std::size_t sample = 0;
  EosSet eos;
  std::optional<StreamDecoder> decoder;
  std::optional<StopMatcher> stops;
  std::optional<std::chrono::steady_clock::time_point> first_token;
  bool ended = false;
  bool broken = false;  // its logits were not finite
  Sample out;
};

// The beams of a request: its samples are the best of them.
struct Answers::Searching {
  Searching(std::size_t index, const TextBeamOptions& options) : request(index), beams(options) {}
  std::size_t request;
  TextBeams beams;
  std::optional<std::chrono::steady_clock::time_point> first_token;
  bool broken = false;
};

// A sample of sound.
struct Answers::Composing {
  Composing(std::size_t index, std::size_t number, const CodebookDelay& pattern)
      : request(index), sample(number), delay(pattern) {}
  std::size_t request;
  std::size_t sample;
  const CodebookDelay& delay;
  std::vector<std::int32_t> ids;  // [positions, codebooks], as they are fed back
  std::vector<std::vector<std::int32_t>> codes;
  std::optional<std::chrono::steady_clock::time_point> first_token;
  bool ended = false;
  bool broken = false;
  Sample out;

  std::int64_t positions() const { return static_cast<std::int64_t>(ids.size()) / delay.codebooks(); }
};

namespace {

std::string hash_of(const PreparedRequest& request, const std::vector<Sample>& samples) {
  Sha256 hash;
  const auto add = [&](const std::vector<std::int32_t>& ids) {
    const std::uint64_t count = ids.size();
    hash.update(std::as_bytes(std::span(&count, 1)));
    hash.update(std::as_bytes(std::span(ids)));
  };
  if (request.speech) hash.update(std::as_bytes(std::span(*request.speech->samples)));
  if (request.input) add(request.input->ids);
  add(request.prompt);
  for (const auto& sample : samples) add(sample.tokens);
  return hash.hex_digest();
}

}  // namespace

Answers::Answers(const std::vector<PreparedRequest>& prepared, const TextSide& text,
                 std::int64_t trace_layers, std::map<std::uint64_t, RequestResult> kept, OnRequest on_request,
                 SoundMaker* sound, SpeechKeeper keeper)
    : prepared_(prepared),
      tokenizer_(text.tokenizer ? &*text.tokenizer : nullptr),
      generation_(text.generation),
      trace_layers_(trace_layers),
      on_request_(std::move(on_request)),
      keeper_(std::move(keeper)),
      sound_(sound) {
  results_.resize(prepared.size());
  open_samples_.resize(prepared.size());
  for (std::size_t index = 0; index < prepared.size(); ++index) {
    const auto& request = prepared[index];
    auto& result = results_[index];
    if (const auto found = kept.find(index); found != kept.end()) {
      result = std::move(found->second);
      continue;
    }
    result.id = request.id;
    result.seed = request.seed;
    result.prompt_tokens = request.prompt_tokens();
    if (!request.problem.empty()) {
      result.status = Status::bad;
      result.message = request.problem;
      on_request_(index, result);
      continue;
    }
    if (request.speech) {
      add_recording(index);
      continue;
    }
    result.samples.resize(static_cast<std::size_t>(request.options.n));
    if (request.max_new_tokens == 0) {
      for (auto& sample : result.samples) sample.finish = Finish::length;
      complete(index);
      continue;
    }
    if (request.options.num_beams > 1) {
      open_samples_[index] = 1;
      parts_.emplace_back(std::make_unique<Searching>(index, beam_options(request, text.generation)));
      more_.push_back(make_sequence(request, index, 0));
      continue;
    }
    open_samples_[index] = request.options.n;
    for (std::int32_t sample = 0; sample < request.options.n; ++sample) {
      if (request.codes) {
        if (sound_ == nullptr) throw_internal("answers of sound are asked for without a codec");
        parts_.emplace_back(std::make_unique<Composing>(index, sample, request.codes->delay));
        more_.push_back(make_sequence(request, index, sample));
        continue;
      }
      auto running = std::make_unique<Running>();
      running->request = index;
      running->sample = static_cast<std::size_t>(sample);
      if (!request.options.ignore_eos) running->eos = EosSet(text.generation.eos_ids);
      if (text.tokenizer) {
        running->decoder.emplace(*text.tokenizer, true);
        running->stops.emplace(request.options.stop);
      }
      running->out.logprobs.top = std::max(0, request.options.sampling.logprobs);
      parts_.emplace_back(std::move(running));
      more_.push_back(make_sequence(request, index, sample));
    }
  }
  sequences_ = std::exchange(more_, {});
  for (auto& heard : recordings_) report(heard);  // of those that hold nothing to be said
}

Answers::~Answers() = default;

DriverEvents Answers::events() {
  return {.on_chosen = [this](std::size_t sequence,
                              std::span<const ChosenToken> chosen) { return on_chosen(sequence, chosen); },
          .on_watched =
              [this](std::size_t sequence, const Watched& watched) {
                const auto pass = std::get<Pass>(parts_[sequence]);
                recordings_[pass.recording].recording->on_watched(pass.piece, watched);
                take_passes(pass.recording);
              },
          .on_done = [this](std::size_t sequence, std::vector<std::uint64_t> digests,
                            std::int64_t positions) { on_done(sequence, std::move(digests), positions); },
          .more =
              [this] {
                finish_sounds(false);
                return std::exchange(more_, {});
              }};
}

std::vector<WatchedHead> Answers::watched() const {
  std::vector<WatchedHead> heads;
  for (const auto& heard : recordings_) {
    const auto& speech = *prepared_[heard.request].speech;
    if (!heads.empty() || !speech.options.word_timestamps) continue;
    for (const auto& head : speech.tokens->alignment_heads) heads.push_back({head.layer, head.head});
  }
  return heads;
}

void Answers::add_recording(std::size_t index) {
  const auto& request = prepared_[index];
  auto& heard = recordings_.emplace_back();
  heard.request = index;
  const auto kept = keeper_.kept.find(index);
  try {
    heard.recording = std::make_unique<Recording>(request.speech, index, request.seed,
                                                  kept == keeper_.kept.end() ? KeptWindows() : kept->second);
  } catch (const Error& problem) {
    if (problem.code() != ExitCode::bad_data || kept == keeper_.kept.end()) throw;
    throw_bad_data("going on with request '" + request.id + "': " + problem.what() +
                   "; start anew with --no-resume");
  }
  take_passes(recordings_.size() - 1);
}

// The passes that a recording asks for, as sequences; windows that have ended are told of.
void Answers::take_passes(std::size_t index) {
  auto& heard = recordings_[index];
  for (auto& pass : heard.recording->take_passes()) {
    if (heard.last.size() <= pass.piece) heard.last.resize(pass.piece + 1);
    auto& last = heard.last[pass.piece];
    if (pass.same_window) pass.sequence.follows = last;
    last = parts_.size();
    parts_.emplace_back(Pass{index, pass.piece});
    more_.push_back(std::move(pass.sequence));
    ++heard.under_way;
  }
  const auto ended = heard.recording->take_ended();
  if (!keeper_.on_window || heard.recording->done()) return;  // then all of it is told of
  for (const auto& each : ended) keeper_.on_window(heard.request, each);
}

Decision Answers::hear(const Pass& pass, std::span<const ChosenToken> chosen) {
  auto& heard = recordings_[pass.recording];
  if (!heard.begin) heard.begin = std::chrono::steady_clock::now();
  auto decision = heard.recording->on_chosen(pass.piece, chosen);
  take_passes(pass.recording);
  return decision;
}

void Answers::leave(const Pass& pass, std::span<const std::uint64_t> digests, std::int64_t positions) {
  auto& heard = recordings_[pass.recording];
  heard.recording->on_left(pass.piece, digests, positions);
  --heard.under_way;
  report(heard);
}

// A recording whose passes have all left is told of, if it is at its end.
void Answers::report(Heard& heard) {
  const auto& recording = *heard.recording;
  if (heard.under_way > 0 || heard.reported || !(recording.done() || recording.broken())) return;
  heard.reported = true;
  auto& result = results_[heard.request];
  if (recording.broken()) {
    result.status = Status::bad;
    result.message =
        "the model's logits are not finite on this recording: its weights or this build overflow on it";
  } else {
    auto& sample = result.samples.emplace_back();
    sample.transcript = recording.transcript();
    sample.text = sample.transcript->text;
    sample.tokens = recording.said();
    sample.finish = recording.cut() ? Finish::length : Finish::end_of_text;
    sample.trace = recording.trace(trace_layers_);
  }
  if (heard.begin)
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - *heard.begin).count();
  complete(heard.request);
}

Decision Answers::on_chosen(std::size_t sequence, std::span<const ChosenToken> chosen) {
  return std::visit(
      Overloaded{
          [&](std::unique_ptr<Running>& running) {
            return Decision{.ended = take_token(*running, chosen.front().token)};
          },
          [&](const Pass& pass) { return hear(Pass(pass), chosen); },
          [&](std::unique_ptr<Searching>& searching) { return search(*searching, chosen); },
          [&](std::unique_ptr<Composing>& composing) { return compose(*composing, chosen.front()); },
      },
      parts_[sequence]);
}

Decision Answers::search(Searching& searching, std::span<const ChosenToken> chosen) {
  auto& beams = searching.beams;
  if (!searching.first_token) searching.first_token = std::chrono::steady_clock::now();
  searching.broken = std::ranges::any_of(chosen, [](const ChosenToken& row) { return row.token.id == -1; });
  if (searching.broken) return {.ended = true};
  std::vector<std::vector<TokenLogprob>> likeliest;
  for (const auto& row : chosen.first(beams.rows())) likeliest.push_back(row.token.top);
  const auto sources = beams.advance(likeliest);
  if (beams.finished()) return {.ended = true};
  std::vector<std::int32_t> tokens;
  for (const auto& beam : beams.live()) tokens.push_back(beam.tokens.back());
  return go_on(tokens, sources, prepared_[searching.request].options.num_beams);
}

void Answers::finish_search(Searching& searching, Trace trace) {
  const auto& request = prepared_[searching.request];
  auto& result = results_[searching.request];
  if (searching.broken) {
    result.status = Status::bad;
    result.message = "the model's logits are not finite on this prompt: its weights or this build overflow";
  } else {
    const auto& found = searching.beams.results();
    result.samples.resize(std::min(found.size(), static_cast<std::size_t>(request.options.n)));
    const EosSet ends(request.options.ignore_eos ? std::vector<std::int32_t>() : generation_.eos_ids);
    for (std::size_t i = 0; i < result.samples.size(); ++i) {
      auto& sample = result.samples[i];
      sample.tokens = found[i].tokens;
      const bool ended = ends.contains(sample.tokens.back());
      sample.finish = ended ? Finish::end_of_text : Finish::length;
      if (tokenizer_ != nullptr) {
        const auto text = std::span(sample.tokens).first(sample.tokens.size() - (ended ? 1 : 0));
        sample.text = tokenizer_->decode(text, true);
      }
    }
    if (!trace.digests.empty()) result.samples.front().trace = std::move(trace);
  }
  const auto elapsed = std::chrono::steady_clock::now() - *searching.first_token;
  result.seconds = std::chrono::duration<double>(elapsed).count();
  complete(searching.request);
}

// Codes that stand where the pattern has padding are no codes, and are not fed back.
Decision Answers::compose(Composing& composing, const ChosenToken& chosen) {
  if (!composing.first_token) composing.first_token = std::chrono::steady_clock::now();
  composing.broken = chosen.token.id < 0;
  composing.ended = composing.broken;
  if (composing.broken) return {.ended = true};
  Decision decision;
  decision.codes = chosen.codes;
  composing.delay.mask(composing.positions() + 1, decision.codes);
  composing.ids.insert(composing.ids.end(), decision.codes.begin(), decision.codes.end());
  composing.ended = composing.positions() == composing.delay.new_tokens();
  decision.ended = composing.ended;
  return decision;
}

void Answers::finish_codes(Composing& composing, Trace trace) {
  auto& out = composing.out;
  if (!trace.digests.empty()) out.trace = std::move(trace);
  if (composing.broken) {
    auto& result = results_[composing.request];
    result.status = Status::bad;
    result.message = "the model's logits are not finite after " + std::to_string(composing.positions()) +
                     " positions: its weights or this build overflow on this prompt";
    finish_sample(composing.request, composing.sample, {}, *composing.first_token);
    return;
  }
  composing.codes = composing.delay.undo(composing.ids);
  for (const auto& codebook : composing.codes)
    out.tokens.insert(out.tokens.end(), codebook.begin(), codebook.end());
  out.finish = Finish::length;
  silent_.push_back(&composing);
  finish_sounds(false);
}

// Takes in sound that has been made, and has the next made.
void Answers::finish_sounds(bool all) {
  while (!silent_.empty()) {
    auto& composing = *silent_.front();
    if (!making_.valid())
      making_ = std::async(std::launch::async, [this, &composing] { return sound_->make(composing.codes); });
    if (!all && making_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    silent_.pop_front();
    try {
      composing.out.media = making_.get();
    } catch (const Error& problem) {
      if (problem.code() != ExitCode::bad_data) throw;
      results_[composing.request].status = Status::bad;
      results_[composing.request].message = problem.what();
    }
    finish_sample(composing.request, composing.sample, std::move(composing.out), *composing.first_token);
  }
}

bool Answers::take_token(Running& running, const SampledToken& token) {
  const auto& request = prepared_[running.request];
  if (!running.first_token) running.first_token = std::chrono::steady_clock::now();
  if (token.id == kNothingLeft) {
    end(running, Finish::none);
    return true;
  }
  if (token.id < 0) {
    running.broken = true;
    end(running, Finish::none);
    return true;
  }
  auto& out = running.out;
  out.tokens.push_back(token.id);
  if (request.options.sampling.logprobs >= 0) {
    out.logprobs.chosen.push_back(token.logprob);
    for (const auto& alternative : token.top) {
      out.logprobs.top_ids.push_back(alternative.id);
      out.logprobs.top_values.push_back(alternative.logprob);
    }
  }
  if (running.eos.contains(token.id)) {
    end(running, Finish::end_of_text);
    return true;
  }
  if (running.decoder) out.text += running.stops->push(running.decoder->push(token.id));
  if (running.stops && running.stops->stopped()) {
    end(running, Finish::stop_string);
    return true;
  }
  if (static_cast<std::int64_t>(out.tokens.size()) == request.max_new_tokens) {
    end(running, Finish::length);
    return true;
  }
  return false;
}

void Answers::end(Running& running, Finish finish) {
  running.ended = true;
  if (running.decoder && !running.stops->stopped()) {
    running.out.text += running.stops->push(running.decoder->finish());
    running.out.text += running.stops->finish();
  }
  running.out.finish = finish;
}

void Answers::on_done(std::size_t sequence, std::vector<std::uint64_t> digests, std::int64_t positions) {
  if (const auto* pass = std::get_if<Pass>(&parts_[sequence])) return leave(*pass, digests, positions);
  if (const auto* searching = std::get_if<std::unique_ptr<Searching>>(&parts_[sequence])) {
    auto& search = **searching;
    if (!search.beams.finished() && !search.broken) return;  // the run is stopping
    finish_search(search, {trace_layers_, positions, std::move(digests)});
    return;
  }
  if (const auto* composing = std::get_if<std::unique_ptr<Composing>>(&parts_[sequence])) {
    if ((*composing)->ended) finish_codes(**composing, {trace_layers_, positions, std::move(digests)});
    return;
  }
  auto& running = *std::get<std::unique_ptr<Running>>(parts_[sequence]);
  if (!running.ended) return;  // the run is stopping; it starts again when the job goes on
  auto& result = results_[running.request];
  if (!digests.empty()) running.out.trace = {trace_layers_, positions, std::move(digests)};
  if (running.broken) {
    result.status = Status::bad;
    result.message = "the model's logits are not finite after " + std::to_string(running.out.tokens.size()) +
                     " tokens: its weights or this build overflow on this prompt";
  }
  finish_sample(running.request, running.sample, std::move(running.out), *running.first_token);
}

void Answers::finish_sample(std::size_t request, std::size_t sample, Sample out,
                            std::chrono::steady_clock::time_point begin) {
  auto& result = results_[request];
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  result.seconds = std::max(result.seconds, elapsed.count());
  result.samples[sample] = std::move(out);
  if (--open_samples_[request] == 0) complete(request);
}

void Answers::complete(std::size_t request) {
  auto& result = results_[request];
  if (result.status == Status::bad) {
    result.samples.clear();
  } else {
    result.status = Status::done;
    result.sha256 = hash_of(prepared_[request], result.samples);
  }
  on_request_(request, result);
}

std::vector<RequestResult> Answers::take() {
  finish_sounds(true);
  for (auto& result : results_) {
    if (result.status == Status::unfinished) result.samples.clear();
  }
  return std::move(results_);
}

}  // namespace diffuse
