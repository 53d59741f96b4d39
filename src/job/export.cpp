#include "job/export.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <fstream>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/utf8.hpp"
#include "job/npy.hpp"
#include "job/transcript.hpp"
#include "job/wav.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kLongestName = 100;

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", seconds);
  return text.data();
}

// ---- show
// ------------------------------------------------------------------------------------------------------

struct Counts {
  std::uint64_t done = 0;
  std::uint64_t bad = 0;
  std::uint64_t unfinished = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t tokens = 0;  // of texts and transcripts
  std::uint64_t texts = 0;
  std::uint64_t codes = 0;  // of sounds
  std::uint64_t sounds = 0;
  std::uint64_t pictures = 0;
  std::uint64_t videos = 0;
  std::uint64_t latents = 0;  // that are not shown too
};

void count(Counts& counts, const Sample& sample) {
  const auto is = [&](MediaKind kind) { return sample.media && sample.media->kind == kind; };
  const bool text = !sample.media && !sample.latent;
  counts.texts += text ? 1 : 0;
  counts.tokens += text ? sample.tokens.size() : 0;
  counts.sounds += is(MediaKind::sound) ? 1 : 0;
  counts.codes += is(MediaKind::sound) ? sample.tokens.size() : 0;
  counts.pictures += is(MediaKind::picture) ? 1 : 0;
  counts.videos += is(MediaKind::video) ? 1 : 0;
  counts.latents += sample.latent && !sample.media ? 1 : 0;
}

Counts counts_of(const Result& result) {
  Counts counts;
  for (const auto& request : result.requests) {
    counts.done += request.status == Status::done ? 1 : 0;
    counts.bad += request.status == Status::bad ? 1 : 0;
    counts.unfinished += request.status == Status::unfinished ? 1 : 0;
    counts.prompt_tokens += static_cast<std::uint64_t>(request.prompt_tokens);
    for (const auto& sample : request.samples) count(counts, sample);
  }
  return counts;
}

// Pictures and latents have no tokens and no way to end.
bool has_tokens(const Sample& sample) {
  return !sample.tokens.empty() || (!sample.media && !sample.latent);
}

std::string counted(std::uint64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// "2 requests: 2 done, 0 bad, 0 unfinished; 4 prompt tokens, 30 generated", of media what was made.
std::string summary(const Result& result) {
  const auto counts = counts_of(result);
  std::string text = std::to_string(result.requests.size()) + " requests: " + std::to_string(counts.done) +
                     " done, " + std::to_string(counts.bad) + " bad, " + std::to_string(counts.unfinished) +
                     " unfinished; " + std::to_string(counts.prompt_tokens) + " prompt tokens";
  const auto media = counts.sounds + counts.pictures + counts.videos + counts.latents;
  if (counts.texts > 0 || media == 0) text += ", " + std::to_string(counts.tokens) + " generated";
  if (counts.sounds > 0)
    text += ", " + counted(counts.sounds, "sound") + " of " + counted(counts.codes, "code");
  if (counts.pictures > 0) text += ", " + counted(counts.pictures, "picture");
  if (counts.videos > 0) text += ", " + counted(counts.videos, "video");
  if (counts.latents > 0) text += ", " + counted(counts.latents, "latent");
  return text;
}

std::vector<const RequestResult*> chosen(const Result& result, const std::string& only) {
  std::vector<const RequestResult*> requests;
  for (const auto& request : result.requests)
    if (only.empty() || request.id == only) requests.push_back(&request);
  if (requests.empty() && !only.empty())
    throw_usage("the result holds no request with the id '" + only + "'");
  return requests;
}

std::string shortened(const std::string& text, std::uint64_t max_bytes) {
  if (max_bytes == 0 || text.size() <= max_bytes) return text;
  return std::string(utf8_prefix(text, max_bytes)) + "…";
}

void append_object(std::string& out, const char* name, const Json& object) {
  if (object.empty()) return;
  out += std::string(name) + "\n";
  for (const auto& [key, value] : object.items())
    out += "  " + visible(key) + ": " + visible(value.is_string() ? value.get<std::string>() : dump(value)) +
           "\n";
}

std::string heading(const RequestResult& request, std::size_t sample) {
  std::string text = "== " + visible(request.id);
  if (request.samples.size() > 1) text += ", sample " + std::to_string(sample);
  return text;
}

// How long a request took, and of sound how that compares with how long it plays.
std::string pace(const RequestResult& request, double playing_seconds) {
  if (request.seconds <= 0) return {};
  auto text = ", the request took " + fixed(request.seconds, 1) + " s";
  if (playing_seconds > 0)
    text += ", " + fixed(playing_seconds / request.seconds, 2) + " times as fast as it plays";
  return text;
}

double seconds_of(const Sample& sample) {
  if (sample.transcript) return sample.transcript->duration;
  const bool sound = sample.media && sample.media->kind == MediaKind::sound && sample.media->rate > 0;
  return sound ? static_cast<double>(sample.media->frames) / sample.media->rate : 0;
}

// What a sample is, in the words of its kind: "10 tokens, length".
std::string label_of(const RequestResult& request, const Sample& sample) {
  double playing = 0;
  for (const auto& each : request.samples) playing += seconds_of(each);
  const auto tokens = sample.tokens.size();
  auto said = counted(tokens, "token") + ", " + std::string(name_of(sample.finish));
  if (sample.transcript)
    return said + ", " + fixed(sample.transcript->duration, 1) + " s of sound" + pace(request, playing);
  std::string text;
  if (sample.media) text = describe(*sample.media);
  if (sample.latent) text += (text.empty() ? "" : "; ") + describe(*sample.latent);
  if (text.empty()) return said;
  if (tokens > 0) text = counted(tokens, "code") + ", " + text;
  return text + pace(request, playing);
}

// ---- export
// ----------------------------------------------------------------------------------------------------

std::string safe_name(const std::string& id) {
  std::string name;
  for (const char c : id.substr(0, kLongestName)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    name += plain ? c : '_';
  }
  if (name.empty() || name.front() == '.') name.insert(name.begin(), '_');
  return name;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // a link of that name must not lead the text elsewhere
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw_errno("writing '" + path.string() + "'");
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_row(const RequestResult& request, const std::string& sample, const std::string& finish,
                    const std::string& tokens, const std::string& file) {
  return csv_field(request.id) + "," + sample + "," + std::string(name_of(request.status)) + "," + finish +
         "," + std::to_string(request.prompt_tokens) + "," + tokens + "," + seconds_text(request.seconds) +
         "," + file + "," + csv_field(request.message) + "\n";
}

// NAME.wav, or what `files` makes of pictures; the main file's name is returned.
std::string write_media(const std::filesystem::path& folder, const std::string& name, const MediaArray& media,
                        const MediaFiles& files) {
  if (media.kind == MediaKind::sound) {
    const auto rate = static_cast<std::int64_t>(media.rate);
    write_file(folder / (name + ".wav"), wav_file(media.floats(), media.channels, rate));
    return name + ".wav";
  }
  const auto made = files(media);
  for (const auto& file : made) {
    const auto path = folder / (name + file.ending);
    std::error_code failed;
    std::filesystem::create_directories(path.parent_path(), failed);
    if (failed) throw_io("making the folder '" + path.parent_path().string() + "': " + failed.message());
    write_file(path, file.bytes);
  }
  return name + made.at(0).ending;
}

std::string write_latent(const std::filesystem::path& folder, const std::string& name,
                         const LatentArray& latent) {
  const std::array<std::int64_t, 4> shape = {latent.channels, latent.frames, latent.height, latent.width};
  auto file = name + ".latent.npy";
  write_file(folder / file, npy_file(latent.values, shape));
  return file;
}

// Beside NAME.txt: subtitles, a table and JSON.
void write_transcript(const std::filesystem::path& name, const Transcript& transcript,
                      const SubtitleOptions& subtitles) {
  write_file(name.string() + ".srt", transcript_srt(transcript, subtitles));
  write_file(name.string() + ".vtt", transcript_vtt(transcript, subtitles));
  write_file(name.string() + ".tsv", transcript_tsv(transcript));
  write_file(name.string() + ".json", transcript_json(transcript));
}

Json facts_of(const MediaArray& media) {
  return {{"kind", name_of(media.kind)}, {"element", name_of(media.element)},
          {"frames", media.frames},      {"height", media.height},
          {"width", media.width},        {"channels", media.channels},
          {"rate", media.rate}};
}

Json facts_of(const LatentArray& latent) {
  return {{"channels", latent.channels},
          {"frames", latent.frames},
          {"height", latent.height},
          {"width", latent.width}};
}

Json line_of(const RequestResult& request) {
  Json line = {{"id", request.id},
               {"status", name_of(request.status)},
               {"seed", request.seed},
               {"prompt_tokens", request.prompt_tokens}};
  if (!request.message.empty()) line["message"] = request.message;
  return line;
}

}  // namespace

// A folder may be copied to a system that ignores case.
std::string FileNames::take(const std::string& id, std::size_t sample, std::size_t samples) {
  const auto wanted = safe_name(id) + (samples > 1 ? "-" + std::to_string(sample) : "");
  auto name = wanted;
  for (int i = 2; !taken_.insert(lower(name)).second; ++i) name = wanted + "~" + std::to_string(i);
  return name;
}

std::string show_text(const Result& result, const ShowOptions& options) {
  const auto requests = chosen(result, options.only);
  std::string out = summary(result) + "\n";
  if (options.only.empty()) {
    append_object(out, "timing", result.timing);
    append_object(out, "provenance", result.provenance);
    append_object(out, "verification", result.verification);
  }
  for (const RequestResult* request : requests) {
    if (request->status != Status::done) {
      out += "\n" + heading(*request, 0) + ": " + std::string(name_of(request->status));
      out += (request->message.empty() ? "" : ": " + visible(request->message)) + "\n";
      if (request->status == Status::bad) continue;
    }
    if (!options.texts) continue;
    for (std::size_t i = 0; i < request->samples.size(); ++i) {
      const Sample& sample = request->samples[i];
      out += "\n" + heading(*request, i) + " (" + label_of(*request, sample) + ")\n";
      if ((sample.media || sample.latent) && sample.text.empty()) continue;
      out += visible(shortened(sample.text, options.max_bytes)) + "\n";
    }
  }
  return out;
}

Json show_json(const Result& result, const ShowOptions& options) {
  Json requests = Json::array();
  for (const RequestResult* request : chosen(result, options.only)) {
    Json entry = line_of(*request);
    entry["sha256"] = request->sha256;
    entry["seconds"] = request->seconds;
    entry["samples"] = Json::array();
    for (const auto& sample : request->samples) {
      Json item = Json::object();
      if (has_tokens(sample)) item = {{"finish", name_of(sample.finish)}, {"tokens", sample.tokens}};
      if (options.texts && has_tokens(sample)) item["text"] = shortened(sample.text, options.max_bytes);
      if (!sample.logprobs.chosen.empty())
        item["logprobs"] = {{"chosen", sample.logprobs.chosen},
                            {"top", sample.logprobs.top},
                            {"top_ids", sample.logprobs.top_ids},
                            {"top_values", sample.logprobs.top_values}};
      if (options.texts && sample.transcript) item["transcript"] = json_of(*sample.transcript);
      if (sample.media) item["media"] = facts_of(*sample.media);
      if (sample.latent) item["latent"] = facts_of(*sample.latent);
      entry["samples"].push_back(std::move(item));
    }
    requests.push_back(std::move(entry));
  }
  return {{"format_version", result.format_version},
          {"requests", std::move(requests)},
          {"timing", result.timing},
          {"provenance", result.provenance},
          {"verification", result.verification}};
}

Exported export_result(const Result& result, const std::filesystem::path& folder, const MediaFiles& files,
                       const SubtitleOptions& subtitles) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw_io("making folder '" + folder.string() + "': " + failed.message());
  FileNames names;
  std::string lines;
  std::string table = "id,sample,status,finish,prompt_tokens,tokens,seconds,file,message\n";
  Exported exported;
  for (const auto& request : result.requests) {
    if (request.status != Status::done) ++exported.unfinished;
    if (request.samples.empty()) {
      lines += dump(line_of(request)) + "\n";
      table += csv_row(request, "", "", "", "");
    }
    for (std::size_t i = 0; i < request.samples.size(); ++i) {
      const Sample& sample = request.samples[i];
      const std::string name = names.take(request.id, i, request.samples.size());
      const bool media = sample.media || sample.latent;
      const bool text = !media || !sample.text.empty();
      std::string file = name + ".txt";
      if (text)
        write_file(folder / file, sample.transcript ? transcript_text(*sample.transcript) : sample.text);
      if (sample.transcript) write_transcript(folder / name, *sample.transcript, subtitles);
      if (sample.latent) file = write_latent(folder, name, *sample.latent);
      if (sample.media) file = write_media(folder, name, *sample.media, files);
      ++(media ? exported.media : exported.texts);
      Json line = line_of(request);
      line["sample"] = i;
      if (has_tokens(sample)) {
        line["finish"] = name_of(sample.finish);
        line["text"] = sample.text;
        line["tokens"] = sample.tokens;
      }
      line["file"] = file;
      if (sample.media) line["media"] = facts_of(*sample.media);
      if (sample.latent) line["latent"] = facts_of(*sample.latent);
      lines += dump(line) + "\n";
      table += has_tokens(sample) ? csv_row(request, std::to_string(i), std::string(name_of(sample.finish)),
                                            std::to_string(sample.tokens.size()), file)
                                  : csv_row(request, std::to_string(i), "", "", file);
    }
  }
  write_file(folder / "results.jsonl", lines);
  write_file(folder / "results.csv", table);
  return exported;
}

}  // namespace diffuse
