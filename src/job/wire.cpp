#include "job/wire.hpp"

#include "core/hash.hpp"
#include "core/utf8.hpp"
#include "job/names.hpp"
#include "job/result_file.hpp"
#include "job/transcript.hpp"

namespace diffuse::wire {
namespace {

enum class Kind : std::uint8_t { prompt, messages, tokens, no_text, unusable };

constexpr std::uint64_t kSealMagic = 0x31305752354844ULL;  // "DH5RW01"
constexpr std::size_t kSealBytes = 3 * sizeof(std::uint64_t);
// id, kind, generate, rate, language, task, negative prompt, latent and its shape
constexpr std::size_t kLeastRequest = 8 + 1 + 8 + 8 + 8 + 8 + 8 + 8 + 8;
constexpr std::size_t kLeastSample = 8 + 8 + 1 + 4 * 8 + 3 * 8 + 8 + 1 + 5 * 8;
constexpr std::size_t kLeastResult = 8 + 1 + 8 + 8 + 8 + 8 + 8 + 8;

void write(Writer& out, const Request& request) {
  out.text(request.id);
  if (const auto* prompt = std::get_if<Prompt>(&request.input)) {
    out.number(static_cast<std::uint8_t>(Kind::prompt));
    out.text(prompt->text);
  } else if (const auto* messages = std::get_if<Messages>(&request.input)) {
    out.number(static_cast<std::uint8_t>(Kind::messages));
    out.json(messages->value);
  } else if (const auto* tokens = std::get_if<Tokens>(&request.input)) {
    out.number(static_cast<std::uint8_t>(Kind::tokens));
    out.list(tokens->ids);
  } else if (std::holds_alternative<NoText>(request.input)) {
    out.number(static_cast<std::uint8_t>(Kind::no_text));
  } else {
    out.number(static_cast<std::uint8_t>(Kind::unusable));
    out.text(std::get<Unusable>(request.input).why);
  }
  out.json(request.generate);
  out.number<std::int64_t>(request.audio ? request.audio->rate : 0);
  if (request.audio) out.list(request.audio->samples);
  out.text(request.language);
  out.text(request.task);
  out.text(request.negative_prompt);
  out.list(request.latent);
  out.list(request.latent_shape);
}

Request read_request(Reader& in) {
  Request request;
  request.id = in.text();
  job_detail::check_id(request.id, in.what());
  switch (static_cast<Kind>(in.number<std::uint8_t>())) {
    case Kind::prompt:
      request.input = Prompt{in.text()};
      break;
    case Kind::messages:
      request.input = Messages{in.json()};
      job_detail::check_messages(std::get<Messages>(request.input).value, in.what());
      break;
    case Kind::tokens:
      request.input = Tokens{in.list<std::int32_t>()};
      for (const auto id : std::get<Tokens>(request.input).ids)
        if (id < 0) throw_bad_data(in.what() + ": a token id is negative");
      break;
    case Kind::no_text:
      request.input = NoText{};
      break;
    case Kind::unusable:
      request.input = Unusable{in.text()};
      break;
    default:
      throw_bad_data(in.what() + ": a request of no known kind");
  }
  request.generate = in.json();
  if (!request.generate.is_object()) throw_bad_data(in.what() + ": a request's `generate` is not an object");
  if (const auto rate = in.number<std::int64_t>(); rate != 0) {
    request.audio = Sound{in.list<float>(), rate};
    if (const auto flaw = sound_flaw(request.audio->samples, rate); !flaw.empty())
      throw_bad_data(in.what() + ": a request's sound has " + flaw);
  }
  request.language = in.text();
  request.task = in.text();
  request.negative_prompt = in.text();
  request.latent = in.list<float>();
  request.latent_shape = in.list<std::int64_t>();
  if (const auto flaw = job_detail::latent_flaw(request.latent, request.latent_shape); !flaw.empty())
    throw_bad_data(in.what() + ": a request's latent has " + flaw);
  if (!std::holds_alternative<Unusable>(request.input))
    job_detail::check_speech(request.language, request.task, request.audio.has_value(), in.what());
  return request;
}

void write(Writer& out, const std::optional<MediaArray>& media) {
  out.number(media ? static_cast<std::uint8_t>(media->kind) : std::uint8_t{0});
  if (!media) return;
  out.number(static_cast<std::uint8_t>(media->element));
  for (const auto size : {media->frames, media->height, media->width, media->channels}) out.number(size);
  out.number(media->rate);
  out.text({reinterpret_cast<const char*>(media->bytes.data()), media->bytes.size()});
}

// Whether the values fit one another is checked with the whole sample.
std::optional<MediaArray> read_media(Reader& in) {
  const auto kind = in.number<std::uint8_t>();
  if (kind == 0) return std::nullopt;
  MediaArray media;
  media.kind = static_cast<MediaKind>(kind);
  media.element = static_cast<MediaElement>(in.number<std::uint8_t>());
  for (auto* size : {&media.frames, &media.height, &media.width, &media.channels})
    *size = in.number<std::int64_t>();
  media.rate = in.number<double>();
  media.bytes = in.raw();
  return media;
}

void write(Writer& out, const std::optional<LatentArray>& latent) {
  const LatentArray none;
  const auto& of = latent ? *latent : none;
  for (const auto size : {of.channels, of.frames, of.height, of.width}) out.number(size);
  out.list(of.values);
}

std::optional<LatentArray> read_latent(Reader& in) {
  LatentArray latent;
  for (auto* size : {&latent.channels, &latent.frames, &latent.height, &latent.width})
    *size = in.number<std::int64_t>();
  latent.values = in.list<float>();
  if (latent == LatentArray()) return std::nullopt;
  return latent;
}

void write(Writer& out, const Sample& sample) {
  out.list(sample.tokens);
  out.text(sample.text);
  out.number(static_cast<std::uint8_t>(sample.finish));
  out.list(sample.logprobs.chosen);
  out.number(sample.logprobs.top);
  out.list(sample.logprobs.top_ids);
  out.list(sample.logprobs.top_values);
  out.number(sample.trace.layers);
  out.number(sample.trace.positions);
  out.list(sample.trace.digests);
  out.json(sample.transcript ? json_of(*sample.transcript) : Json::object());
  write(out, sample.media);
  write(out, sample.latent);
}

Sample read_sample(Reader& in) {
  Sample sample;
  sample.tokens = in.list<std::int32_t>();
  sample.text = in.text();
  const auto finish = in.number<std::uint8_t>();
  if (finish > static_cast<std::uint8_t>(Finish::length))
    throw_bad_data(in.what() + ": no known way to finish");
  sample.finish = static_cast<Finish>(finish);
  sample.logprobs.chosen = in.list<float>();
  sample.logprobs.top = in.number<std::int64_t>();
  sample.logprobs.top_ids = in.list<std::int32_t>();
  sample.logprobs.top_values = in.list<float>();
  sample.trace.layers = in.number<std::int64_t>();
  sample.trace.positions = in.number<std::int64_t>();
  sample.trace.digests = in.list<std::uint64_t>();
  if (const Json transcript = in.json(); !transcript.empty())
    sample.transcript = transcript_of(transcript, in.what() + ": transcript");
  sample.media = read_media(in);
  sample.latent = read_latent(in);
  return sample;
}

Json object_of(Reader& in, const char* name) {
  Json value = in.json();
  if (!value.is_object()) throw_bad_data(in.what() + ": `" + name + "` is not an object");
  return value;
}

}  // namespace

void Writer::json(const Json& value) {
  // Most requests say nothing of their own: no parsing for those.
  const bool empty = value.is_object() && value.empty();
  text(empty ? std::string() : dump(value));
}

void Reader::fail() const {
  throw_bad_data(what_ + ": it ends too early");
}

std::span<const std::byte> Reader::take(std::size_t size) {
  if (size > left_.size()) fail();
  const auto bytes = left_.first(size);
  left_ = left_.subspan(size);
  return bytes;
}

std::size_t Reader::count(std::size_t least) {
  const auto count = number<std::uint64_t>();
  if (count > left_.size() / least) fail();
  return count;
}

std::span<const std::byte> Reader::take_items(std::size_t size) {
  const std::size_t items = count(size);
  return take(items * size);
}

std::string Reader::text() {
  const auto bytes = take_items(1);
  return repair_utf8({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<std::byte> Reader::raw() {
  const auto bytes = take_items(1);
  return {bytes.begin(), bytes.end()};
}

Json Reader::json() {
  const std::string dumped = text();
  return dumped.empty() ? Json::object() : parse_json(dumped, what_);
}

void Reader::expect_end() const {
  if (!left_.empty()) throw_bad_data(what_ + ": " + std::to_string(left_.size()) + " bytes too many");
}

void write(Writer& out, const Job& job) {
  out.number(job.format_version);
  out.text(job.model);
  out.json(job.generate);
  out.text(job.sha256);
  out.number<std::uint64_t>(job.requests.size());
  for (const auto& request : job.requests) write(out, request);
}

void write(Writer& out, const RequestResult& request) {
  out.text(request.id);
  out.number(static_cast<std::uint8_t>(request.status));
  out.text(request.message);
  out.number(request.seed);
  out.number(request.prompt_tokens);
  out.text(request.sha256);
  out.number(request.seconds);
  out.number<std::uint64_t>(request.samples.size());
  for (const auto& sample : request.samples) write(out, sample);
}

void write(Writer& out, const Result& result) {
  out.number(result.format_version);
  out.json(result.timing);
  out.json(result.provenance);
  out.json(result.verification);
  out.number<std::uint64_t>(result.requests.size());
  for (const auto& request : result.requests) write(out, request);
}

Job read_job(Reader& in) {
  Job job;
  job.format_version = in.number<std::int64_t>();
  job.model = in.text();
  job.generate = object_of(in, "generate");
  job.sha256 = in.text();
  const std::size_t count = in.count(kLeastRequest);
  job.requests.reserve(count);
  for (std::size_t i = 0; i < count; ++i) job.requests.push_back(read_request(in));
  return job;
}

RequestResult read_request_result(Reader& in) {
  RequestResult request;
  request.id = in.text();
  const auto status = in.number<std::uint8_t>();
  if (status > static_cast<std::uint8_t>(Status::unfinished)) throw_bad_data(in.what() + ": no known status");
  request.status = static_cast<Status>(status);
  request.message = in.text();
  request.seed = in.number<std::uint64_t>();
  request.prompt_tokens = in.number<std::int64_t>();
  request.sha256 = in.text();
  request.seconds = in.number<double>();
  const std::size_t samples = in.count(kLeastSample);
  request.samples.reserve(samples);
  for (std::size_t i = 0; i < samples; ++i) request.samples.push_back(read_sample(in));
  check_request_result(request, ExitCode::bad_data, in.what());
  return request;
}

Result read_result(Reader& in) {
  Result result;
  result.format_version = in.number<std::int64_t>();
  result.timing = object_of(in, "timing");
  result.provenance = object_of(in, "provenance");
  result.verification = object_of(in, "verification");
  const std::size_t count = in.count(kLeastResult);
  result.requests.reserve(count);
  for (std::size_t i = 0; i < count; ++i) result.requests.push_back(read_request_result(in));
  return result;
}

void write(Writer& out, const TranscriptWindow& window) {
  out.number(window.next);
  out.number(window.clip);
  out.text(window.language);
  out.number(window.language_probability);
  out.number(static_cast<std::uint8_t>(window.forget));
  out.number(static_cast<std::uint8_t>(window.cut));
  out.number(window.last_speech);
  out.list(window.said);
  Transcript segments;
  segments.segments = window.segments;
  out.json(json_of(segments));
}

TranscriptWindow read_window(Reader& in) {
  TranscriptWindow window;
  window.next = in.number<std::int64_t>();
  window.clip = in.number<std::int64_t>();
  window.language = in.text();
  window.language_probability = in.number<double>();
  window.forget = in.number<std::uint8_t>() != 0;
  window.cut = in.number<std::uint8_t>() != 0;
  window.last_speech = in.number<double>();
  window.said = in.list<std::int32_t>();
  window.segments = transcript_of(in.json(), in.what() + ": a window").segments;
  return window;
}

std::string sealed(const Writer& payload) {
  const auto bytes = std::as_bytes(std::span(payload.bytes()));
  Writer head;
  head.number(kSealMagic);
  head.number<std::uint64_t>(bytes.size());
  head.number(digest64(bytes));
  return head.bytes() + payload.bytes();
}

std::span<const std::byte> unsealed(std::span<const std::byte> bytes) {
  if (bytes.size() < kSealBytes) return {};
  Reader head(bytes.first(kSealBytes), "seal");
  const auto payload = bytes.subspan(kSealBytes);
  const bool whole = head.number<std::uint64_t>() == kSealMagic &&
                     head.number<std::uint64_t>() == payload.size() &&
                     head.number<std::uint64_t>() == digest64(payload);
  return whole ? payload : std::span<const std::byte>();
}

}  // namespace diffuse::wire
