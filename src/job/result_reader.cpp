#include <algorithm>
#include <array>
#include <span>

#include "core/error.hpp"
#include "core/size.hpp"
#include "core/utf8.hpp"
#include "job/file_reader.hpp"
#include "job/layout.hpp"
#include "job/result_file.hpp"
#include "job/transcript.hpp"

namespace diffuse::job_detail {
namespace {

// Elements [offsets[i], offsets[i+1]) of flat data.
template <typename T>
std::vector<T> cut(const std::vector<T>& data, std::uint64_t begin, std::uint64_t end) {
  return {data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end)};
}

template <typename T>
void expect_count(const h5::Input& file, const std::string& path, const std::vector<T>& values,
                  std::size_t count) {
  if (values.size() != count)
    file.fail(path,
              "has " + std::to_string(values.size()) + " entries and should have " + std::to_string(count));
}

std::vector<std::uint64_t> offsets_of(h5::Input& file, const std::string& path, std::uint64_t end,
                                      std::size_t samples) {
  auto offsets = file.offsets(path, end);
  expect_count(file, path, offsets, samples + 1);
  return offsets;
}

Json json_member(h5::Input& file, const std::string& name) {
  if (!file.has(name)) return Json::object();
  const auto texts = file.strings(name);
  expect_count(file, name, texts, 1);
  Json value = parse_json(repair_utf8(texts[0]), file.what() + ": '" + name + "'");
  if (!value.is_object()) file.fail(name, "is not a JSON object");
  return value;
}

std::vector<RequestResult> requests_of(h5::Input& file) {
  const auto ids = file.strings("request/id");
  const auto status = file.bytes("request/status");
  const auto messages = file.strings("request/message");
  const auto seeds = file.unsigned_numbers("request/seed");
  const auto prompt_tokens = file.signed_numbers("request/prompt_tokens");
  const auto digests = file.strings("request/sha256");
  const auto seconds = file.reals<double>("request/seconds");
  const std::size_t count = ids.size();
  expect_count(file, "request/status", status, count);
  expect_count(file, "request/message", messages, count);
  expect_count(file, "request/seed", seeds, count);
  expect_count(file, "request/prompt_tokens", prompt_tokens, count);
  expect_count(file, "request/sha256", digests, count);
  expect_count(file, "request/seconds", seconds, count);
  std::vector<RequestResult> requests(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (status[i] > static_cast<std::uint8_t>(Status::unfinished))
      file.fail("request/status", "holds a number that stands for no status");
    requests[i] = {repair_utf8(ids[i]),
                   static_cast<Status>(status[i]),
                   repair_utf8(messages[i]),
                   seeds[i],
                   prompt_tokens[i],
                   repair_utf8(digests[i]),
                   seconds[i],
                   {}};
  }
  return requests;
}

std::vector<Sample> samples_of(h5::Input& file, std::size_t count) {
  const auto texts = file.strings("text");
  const auto tokens = file.small_numbers("tokens/data");
  const auto offsets = offsets_of(file, "tokens/offsets", tokens.size(), count);
  const auto finish = file.bytes("sample/finish");
  expect_count(file, "text", texts, count);
  expect_count(file, "sample/finish", finish, count);
  std::vector<Sample> samples(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (finish[i] > static_cast<std::uint8_t>(Finish::length))
      file.fail("sample/finish", "holds a number that stands for no way to finish");
    samples[i].tokens = cut(tokens, offsets[i], offsets[i + 1]);
    samples[i].text = repair_utf8(texts[i]);
    samples[i].finish = static_cast<Finish>(finish[i]);
  }
  return samples;
}

void take_logprobs(h5::Input& file, std::vector<Sample>& samples) {
  const auto chosen = file.reals<float>("logprobs/chosen");
  const auto offsets = offsets_of(file, "logprobs/offsets", chosen.size(), samples.size());
  const auto top = file.signed_numbers("logprobs/top");
  const auto top_ids = file.small_numbers("logprobs/top_ids");
  const auto top_values = file.reals<float>("logprobs/top_values");
  expect_count(file, "logprobs/top", top, samples.size());
  expect_count(file, "logprobs/top_values", top_values, top_ids.size());
  CheckedSize at = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (top[i] < 0) file.fail("logprobs/top", "holds a negative number");
    const auto begin = at.value();
    at = at + CheckedSize(offsets[i + 1] - offsets[i]) * static_cast<std::uint64_t>(top[i]);
    if (at > top_ids.size()) file.fail("logprobs/top_ids", "ends too early");
    samples[i].logprobs = {cut(chosen, offsets[i], offsets[i + 1]), top[i], cut(top_ids, begin, at.value()),
                           cut(top_values, begin, at.value())};
  }
  if (at != top_ids.size()) file.fail("logprobs/top_ids", "is longer than `top` says");
}

void take_traces(h5::Input& file, std::vector<Sample>& samples) {
  const auto digests = file.unsigned_numbers("trace/digests");
  const auto offsets = offsets_of(file, "trace/offsets", digests.size(), samples.size());
  const auto layers = file.signed_numbers("trace/layers");
  const auto positions = file.signed_numbers("trace/positions");
  expect_count(file, "trace/layers", layers, samples.size());
  expect_count(file, "trace/positions", positions, samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].trace = {layers[i], positions[i], cut(digests, offsets[i], offsets[i + 1])};
}

void take_transcripts(h5::Input& file, std::vector<Sample>& samples) {
  const auto texts = file.strings("transcript");
  expect_count(file, "transcript", texts, samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (texts[i].empty()) continue;
    const std::string what = file.what() + ": transcript " + std::to_string(i);
    samples[i].transcript = transcript_of(parse_json(repair_utf8(texts[i]), what), what);
  }
}

void take_media(h5::Input& file, std::vector<Sample>& samples) {
  const auto path = [](std::string_view name) { return "media/" + std::string(name); };
  const auto kinds = file.bytes("media/kind");
  const auto rates = file.reals<double>("media/rate");
  expect_count(file, "media/kind", kinds, samples.size());
  expect_count(file, "media/rate", rates, samples.size());
  std::array<std::vector<std::int64_t>, 4> sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = file.signed_numbers(path(layout::kMediaSizes[i]));
    expect_count(file, path(layout::kMediaSizes[i]), sizes[i], samples.size());
  }
  const bool floats = file.has(path(layout::kSamples));
  std::vector<float> elements;
  std::vector<std::uint8_t> pixels;
  if (floats) {
    elements = file.reals<float>(path(layout::kSamples));
  } else {
    pixels = file.bytes(path(layout::kPixels));
  }
  const auto offsets =
      offsets_of(file, "media/offsets", floats ? elements.size() : pixels.size(), samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (kinds[i] == 0 && offsets[i] != offsets[i + 1])
      file.fail("media/kind", "has none for a sample that has media");
    if (kinds[i] == 0) continue;
    const auto part =
        floats ? std::as_bytes(std::span(elements).subspan(offsets[i], offsets[i + 1] - offsets[i]))
               : std::as_bytes(std::span(pixels).subspan(offsets[i], offsets[i + 1] - offsets[i]));
    samples[i].media = MediaArray{.kind = static_cast<MediaKind>(kinds[i]),
                                  .element = floats ? MediaElement::f32 : MediaElement::u8,
                                  .frames = sizes[0][i],
                                  .height = sizes[1][i],
                                  .width = sizes[2][i],
                                  .channels = sizes[3][i],
                                  .rate = rates[i],
                                  .bytes = {part.begin(), part.end()}};
  }
}

void take_latents(h5::Input& file, std::vector<Sample>& samples) {
  std::array<std::vector<std::int64_t>, 4> sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto path = "latent/" + std::string(layout::kLatentSizes[i]);
    sizes[i] = file.signed_numbers(path);
    expect_count(file, path, sizes[i], samples.size());
  }
  const auto elements = file.reals<float>("latent/data");
  const auto offsets = offsets_of(file, "latent/offsets", elements.size(), samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const bool none = std::ranges::all_of(sizes, [&](const auto& size) { return size[i] == 0; });
    if (none && offsets[i] == offsets[i + 1]) continue;
    samples[i].latent = LatentArray{.channels = sizes[0][i],
                                    .frames = sizes[1][i],
                                    .height = sizes[2][i],
                                    .width = sizes[3][i],
                                    .values = cut(elements, offsets[i], offsets[i + 1])};
  }
}

}  // namespace

Result result_of(h5::Input& file) {
  const auto attributes = file.attributes();
  Result result;
  if (std::ranges::find(attributes, "format_version") != attributes.end())
    result.format_version = file.number_attribute("format_version");
  layout::check_version(result.format_version, layout::kResultVersion, file.what());
  if (!file.is_group("sample") || !file.is_group("request"))
    throw_bad_data(file.what() + ": it is not a result of this program (no `sample` or no `request` in it)");
  result.timing = json_member(file, "timing");
  result.provenance = json_member(file, "provenance");
  result.verification = json_member(file, "verification");
  result.requests = requests_of(file);

  const auto owners = file.unsigned_numbers("sample/request");
  auto samples = samples_of(file, owners.size());
  if (file.is_group("logprobs")) take_logprobs(file, samples);
  if (file.is_group("trace")) take_traces(file, samples);
  if (file.has("transcript")) take_transcripts(file, samples);
  if (file.is_group("media")) take_media(file, samples);
  if (file.is_group("latent")) take_latents(file, samples);
  if (!std::ranges::is_sorted(owners)) file.fail("sample/request", "goes back");
  if (!owners.empty() && owners.back() >= result.requests.size())
    file.fail("sample/request", "names a request that is not there");
  for (std::size_t i = 0; i < samples.size(); ++i)
    result.requests[owners[i]].samples.push_back(std::move(samples[i]));
  check_result(result, ExitCode::bad_data, file.what());
  return result;
}

}  // namespace diffuse::job_detail
