#include "job/result_file.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/size.hpp"
#include "job/h5.hpp"
#include "job/layout.hpp"
#include "job/part_file.hpp"
#include "job/transcript.hpp"

namespace diffuse {
namespace {

constexpr std::string_view kStatusMeaning = "0 done, 1 bad, 2 unfinished";
constexpr std::string_view kMediaMeaning = "0 none, 1 sound, 2 picture, 3 video";
constexpr std::string_view kFinishMeaning = "0 none, 1 end_of_text, 2 stop_string, 3 length";

// Lists end to end, with the N + 1 offsets at which they begin.
template <typename T>
struct Flat {
  std::vector<std::uint64_t> offsets = {0};
  std::vector<T> data;
  void add(const std::vector<T>& values) {
    data.insert(data.end(), values.begin(), values.end());
    offsets.push_back(data.size());
  }
};

template <typename T>
void write_array(hid_t parent, const std::string& name, const std::vector<T>& values) {
  h5::write_array<T>(parent, name, std::span<const T>(values));
}

void write_requests(hid_t file, const std::vector<RequestResult>& requests) {
  std::vector<std::string> ids;
  std::vector<std::uint8_t> status;
  std::vector<std::string> messages;
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> prompt_tokens;
  std::vector<std::string> digests;
  std::vector<double> seconds;
  for (const auto& request : requests) {
    ids.push_back(request.id);
    status.push_back(static_cast<std::uint8_t>(request.status));
    messages.push_back(request.message);
    seeds.push_back(request.seed);
    prompt_tokens.push_back(request.prompt_tokens);
    digests.push_back(request.sha256);
    seconds.push_back(request.seconds);
  }
  const auto group = h5::create_group(file, "request");
  h5::write_attribute(group.get(), "status", std::string(kStatusMeaning));
  h5::write_strings(group.get(), "id", ids);
  write_array(group.get(), "status", status);
  h5::write_strings(group.get(), "message", messages);
  write_array(group.get(), "seed", seeds);
  write_array(group.get(), "prompt_tokens", prompt_tokens);
  h5::write_strings(group.get(), "sha256", digests);
  write_array(group.get(), "seconds", seconds);
}

void write_samples(hid_t file, const std::vector<RequestResult>& requests) {
  std::vector<std::uint64_t> owners;
  std::vector<std::uint8_t> finish;
  std::vector<std::string_view> texts;
  Flat<std::int32_t> tokens;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (const auto& sample : requests[i].samples) {
      owners.push_back(i);
      finish.push_back(static_cast<std::uint8_t>(sample.finish));
      texts.push_back(sample.text);
      tokens.add(sample.tokens);
    }
  }
  h5::write_texts(file, "text", texts);
  const auto token_group = h5::create_group(file, "tokens");
  write_array(token_group.get(), "offsets", tokens.offsets);
  write_array(token_group.get(), "data", tokens.data);
  const auto group = h5::create_group(file, "sample");
  h5::write_attribute(group.get(), "finish", std::string(kFinishMeaning));
  write_array(group.get(), "request", owners);
  write_array(group.get(), "finish", finish);
}

bool any_sample(const std::vector<RequestResult>& requests, bool (*holds)(const Sample&)) {
  return std::ranges::any_of(
      requests, [&](const auto& request) { return std::ranges::any_of(request.samples, holds); });
}

void write_logprobs(hid_t file, const std::vector<RequestResult>& requests) {
  if (!any_sample(requests, [](const Sample& sample) { return !sample.logprobs.chosen.empty(); })) return;
  Flat<float> chosen;
  std::vector<std::int64_t> top;
  Flat<std::int32_t> top_ids;
  Flat<float> top_values;
  for (const auto& request : requests) {
    for (const auto& sample : request.samples) {
      chosen.add(sample.logprobs.chosen);
      top.push_back(sample.logprobs.top);
      top_ids.add(sample.logprobs.top_ids);
      top_values.add(sample.logprobs.top_values);
    }
  }
  const auto group = h5::create_group(file, "logprobs");
  write_array(group.get(), "offsets", chosen.offsets);
  write_array(group.get(), "chosen", chosen.data);
  write_array(group.get(), "top", top);
  write_array(group.get(), "top_ids", top_ids.data);
  write_array(group.get(), "top_values", top_values.data);
}

void write_traces(hid_t file, const std::vector<RequestResult>& requests) {
  if (!any_sample(requests, [](const Sample& sample) { return !sample.trace.digests.empty(); })) return;
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> positions;
  Flat<std::uint64_t> digests;
  for (const auto& request : requests) {
    for (const auto& sample : request.samples) {
      layers.push_back(sample.trace.layers);
      positions.push_back(sample.trace.positions);
      digests.add(sample.trace.digests);
    }
  }
  const auto group = h5::create_group(file, "trace");
  write_array(group.get(), "offsets", digests.offsets);
  write_array(group.get(), "layers", layers);
  write_array(group.get(), "positions", positions);
  write_array(group.get(), "digests", digests.data);
}

// JSON texts, an empty one for a sample without a transcript.
void write_transcripts(hid_t file, const std::vector<RequestResult>& requests) {
  if (!any_sample(requests, [](const Sample& sample) { return sample.transcript.has_value(); })) return;
  std::vector<std::string> texts;
  for (const auto& request : requests)
    for (const auto& sample : request.samples)
      texts.push_back(sample.transcript ? dump(json_of(*sample.transcript)) : std::string());
  h5::write_texts(file, "transcript", std::vector<std::string_view>(texts.begin(), texts.end()));
}

// Sizes and elements, 0 and none for a sample that has no media. All elements of a result are of one type.
void write_media(hid_t file, const std::vector<RequestResult>& requests) {
  if (!any_sample(requests, [](const Sample& sample) { return sample.media.has_value(); })) return;
  std::vector<std::uint8_t> kinds;
  std::array<std::vector<std::int64_t>, 4> sizes;
  std::vector<double> rates;
  Flat<float> samples;
  Flat<std::uint8_t> pixels;
  const MediaArray none{.frames = 0, .height = 0, .width = 0, .channels = 0, .bytes = {}};
  for (const auto& request : requests) {
    for (const auto& sample : request.samples) {
      const auto& media = sample.media ? *sample.media : none;
      kinds.push_back(sample.media ? static_cast<std::uint8_t>(media.kind) : std::uint8_t{0});
      const std::array<std::int64_t, 4> own = {media.frames, media.height, media.width, media.channels};
      for (std::size_t i = 0; i < own.size(); ++i) sizes[i].push_back(own[i]);
      rates.push_back(media.rate);
      const bool floats = media.element == MediaElement::f32;
      samples.add(floats ? media.floats() : std::vector<float>());
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(media.bytes.data());
      pixels.add(floats ? std::vector<std::uint8_t>()
                        : std::vector<std::uint8_t>(bytes, bytes + media.bytes.size()));
    }
  }
  const auto group = h5::create_group(file, "media");
  h5::write_attribute(group.get(), "kind", std::string(kMediaMeaning));
  write_array(group.get(), "kind", kinds);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    write_array(group.get(), std::string(layout::kMediaSizes[i]), sizes[i]);
  write_array(group.get(), "rate", rates);
  const bool floats = pixels.data.empty();
  write_array(group.get(), "offsets", floats ? samples.offsets : pixels.offsets);
  if (floats) {
    write_array(group.get(), std::string(layout::kSamples), samples.data);
  } else {
    write_array(group.get(), std::string(layout::kPixels), pixels.data);
  }
}

// As write_media.
void write_latents(hid_t file, const std::vector<RequestResult>& requests) {
  if (!any_sample(requests, [](const Sample& sample) { return sample.latent.has_value(); })) return;
  std::array<std::vector<std::int64_t>, 4> sizes;
  Flat<float> elements;
  const LatentArray none;
  for (const auto& request : requests) {
    for (const auto& sample : request.samples) {
      const auto& latent = sample.latent ? *sample.latent : none;
      const std::array<std::int64_t, 4> own = {latent.channels, latent.frames, latent.height, latent.width};
      for (std::size_t i = 0; i < own.size(); ++i) sizes[i].push_back(own[i]);
      elements.add(latent.values);
    }
  }
  const auto group = h5::create_group(file, "latent");
  for (std::size_t i = 0; i < sizes.size(); ++i)
    write_array(group.get(), std::string(layout::kLatentSizes[i]), sizes[i]);
  write_array(group.get(), "offsets", elements.offsets);
  write_array(group.get(), "data", elements.data);
}

void check_sample(const Sample& sample, ExitCode code, const std::string& what) {
  const auto expect = [&](bool holds, const char* problem) {
    if (!holds) throw Error(code, what + ": " + problem);
  };
  const Logprobs& logprobs = sample.logprobs;
  expect(logprobs.chosen.empty() || logprobs.chosen.size() == sample.tokens.size(),
         "log-probabilities for some of its tokens only");
  expect(logprobs.top >= 0 && sample.trace.layers >= 0 && sample.trace.positions >= 0, "a count is negative");
  const auto best = CheckedSize(logprobs.chosen.size()) * static_cast<std::uint64_t>(logprobs.top);
  expect(best == logprobs.top_ids.size() && best == logprobs.top_values.size(),
         "the best log-probabilities are not `top` a token");
  const auto digests = CheckedSize(static_cast<std::uint64_t>(sample.trace.layers)) *
                       static_cast<std::uint64_t>(sample.trace.positions);
  expect(digests == sample.trace.digests.size(),
         "the trace does not have a digest for each layer and position");
  if (sample.latent)
    if (const auto flaw = latent_flaw(*sample.latent); !flaw.empty()) expect(false, flaw.c_str());
  if (!sample.media) return;
  if (const auto flaw = media_flaw(*sample.media); !flaw.empty()) expect(false, flaw.c_str());
}

}  // namespace

void check_request_result(const RequestResult& request, ExitCode code, const std::string& what) {
  const std::string where = what + ": request '" + request.id + "'";
  if (request.prompt_tokens < 0) throw Error(code, where + ": its count of prompt tokens is negative");
  for (const auto& sample : request.samples) check_sample(sample, code, where);
}

void check_result(const Result& result, ExitCode code, const std::string& what) {
  std::optional<MediaElement> element;
  for (const auto& request : result.requests) {
    check_request_result(request, code, what);
    for (const auto& sample : request.samples) {
      if (!sample.media) continue;
      if (element.value_or(sample.media->element) != sample.media->element)
        throw Error(code, what + ": it holds media of floats and of bytes");
      element = sample.media->element;
    }
  }
}

void write_result(const std::filesystem::path& path, const Result& result) {
  const std::string what = "writing result file '" + path.string() + "'";
  check_result(result, ExitCode::internal, what);
  job_detail::PartFile part(path);
  auto file = h5::create_file(part.path());
  h5::write_attribute(file.get(), "format_version", layout::kResultVersion);
  write_requests(file.get(), result.requests);
  write_samples(file.get(), result.requests);
  write_logprobs(file.get(), result.requests);
  write_traces(file.get(), result.requests);
  write_transcripts(file.get(), result.requests);
  write_media(file.get(), result.requests);
  write_latents(file.get(), result.requests);
  h5::write_string(file.get(), "timing", dump(result.timing));
  h5::write_string(file.get(), "provenance", dump(result.provenance));
  h5::write_string(file.get(), "verification", dump(result.verification));
  file.close(what);
  part.commit();
}

std::string hdf5_version() {
  h5::prepare();
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  h5::check(H5get_libversion(&major, &minor, &release), "asking HDF5 for its version");
  const auto text = [](unsigned a, unsigned b, unsigned c) {
    return std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c);
  };
  const auto compiled = text(H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
  const auto running = text(major, minor, release);
  return compiled == running ? compiled : compiled + ", running " + running;
}

}  // namespace diffuse
