#include "job/job_file.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "job/file_reader.hpp"
#include "job/h5.hpp"
#include "job/layout.hpp"
#include "job/names.hpp"
#include "job/part_file.hpp"

namespace diffuse {
namespace {

// The requests' inputs by kind, as the file keeps them.
struct Stores {
  std::vector<std::uint8_t> kinds;
  std::vector<std::string_view> prompts;
  std::vector<std::string> messages;
  std::vector<std::int32_t> ids;
  std::vector<std::uint64_t> offsets = {0};
};

Stores stores_of(const Job& job, const std::string& what) {
  Stores stores;
  for (const auto& request : job.requests) {
    if (const auto* prompt = std::get_if<Prompt>(&request.input)) {
      stores.kinds.push_back(layout::kPrompt);
      stores.prompts.push_back(prompt->text);
    } else if (const auto* messages = std::get_if<Messages>(&request.input)) {
      stores.kinds.push_back(layout::kMessages);
      stores.messages.push_back(dump(messages->value));
    } else if (const auto* tokens = std::get_if<Tokens>(&request.input)) {
      stores.kinds.push_back(layout::kTokens);
      stores.ids.insert(stores.ids.end(), tokens->ids.begin(), tokens->ids.end());
      stores.offsets.push_back(stores.ids.size());
    } else if (std::holds_alternative<NoText>(request.input)) {
      stores.kinds.push_back(layout::kNoText);
    } else {
      throw_bad_data(what + ": request '" + request.id +
                     "' cannot be written: " + std::get<Unusable>(request.input).why);
    }
  }
  return stores;
}

void write_inputs(hid_t file, const Stores& stores) {
  const bool has_tokens = stores.offsets.size() > 1;
  const bool has_messages = !stores.messages.empty();
  const bool has_silent = std::ranges::find(stores.kinds, layout::kNoText) != stores.kinds.end();
  const bool has_prompts =
      !stores.prompts.empty() || (!has_tokens && !has_messages && !has_silent);  // an empty job: no prompts
  if (has_prompts) h5::write_texts(file, "prompts", stores.prompts);
  if (has_messages) {
    const std::vector<std::string_view> texts(stores.messages.begin(), stores.messages.end());
    h5::write_texts(file, "messages", texts);
  }
  if (has_tokens) {
    const auto group = h5::create_group(file, "tokens");
    h5::write_array<std::uint64_t>(group.get(), "offsets", stores.offsets);
    h5::write_array<std::int32_t>(group.get(), "ids", stores.ids);
  }
  if (has_prompts + has_messages + has_tokens + has_silent > 1)
    h5::write_array<std::uint8_t>(file, "kind", stores.kinds);
}

// `generate` and `id`, only where a request says something of its own.
void write_own(hid_t file, const Job& job) {
  std::vector<std::string> generate;
  bool any_generate = false;
  bool any_id = false;
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    const auto& request = job.requests[i];
    generate.push_back(request.generate.empty() ? std::string() : dump(request.generate));
    any_generate = any_generate || !request.generate.empty();
    any_id = any_id || request.id != std::to_string(i);
  }
  if (any_generate) {
    const std::vector<std::string_view> texts(generate.begin(), generate.end());
    h5::write_texts(file, "generate", texts);
  }
  if (any_id) {
    std::vector<std::string_view> ids;
    for (const auto& request : job.requests) ids.push_back(request.id);
    h5::write_texts(file, "id", ids);
  }
}

// `language` or `task`, only where a request has one.
void write_names(hid_t file, const Job& job, const std::string& name, std::string Request::*member) {
  std::vector<std::string_view> texts;
  bool any = false;
  for (const auto& request : job.requests) {
    texts.push_back(request.*member);
    any = any || !texts.back().empty();
  }
  if (any) h5::write_texts(file, name, texts);
}

// The sound of all requests behind each other; a rate of 0 stands for none.
void write_audio(hid_t file, const Job& job, const std::string& what) {
  std::vector<std::uint64_t> offsets = {0};
  std::vector<std::uint64_t> rates;
  std::vector<float> samples;
  for (const auto& request : job.requests) {
    if (request.audio) {
      const auto& sound = *request.audio;
      if (const auto flaw = sound_flaw(sound.samples, sound.rate); !flaw.empty())
        throw_bad_data(what + ": the sound of request '" + request.id + "' has " + flaw);
      samples.insert(samples.end(), sound.samples.begin(), sound.samples.end());
    } else if (std::holds_alternative<NoText>(request.input)) {
      throw_bad_data(what + ": request '" + request.id + "' has neither text nor sound");
    }
    offsets.push_back(samples.size());
    rates.push_back(request.audio ? static_cast<std::uint64_t>(request.audio->rate) : 0);
  }
  if (samples.empty()) return;
  const auto group = h5::create_group(file, "audio");
  h5::write_array<std::uint64_t>(group.get(), "offsets", offsets);
  h5::write_array<std::uint64_t>(group.get(), "rate", rates);
  h5::write_array<float>(group.get(), "data", samples);
}

// What pictures start from, behind each other, and the sizes of each; 0 where they are not said.
void write_latents(hid_t file, const Job& job, const std::string& what) {
  constexpr std::array<const char*, 4> kSizes = {"channels", "frames", "height", "width"};
  std::vector<std::uint64_t> offsets = {0};
  std::vector<float> elements;
  std::array<std::vector<std::int64_t>, kSizes.size()> sizes;
  bool said = false;
  for (const auto& request : job.requests) {
    const auto& shape = request.latent_shape;
    if (const auto flaw = job_detail::latent_flaw(request.latent, shape); !flaw.empty())
      throw_bad_data(what + ": the latent of request '" + request.id + "' has " + flaw);
    elements.insert(elements.end(), request.latent.begin(), request.latent.end());
    offsets.push_back(elements.size());
    said = said || !shape.empty();
    for (std::size_t axis = 0; axis < sizes.size(); ++axis)
      sizes[axis].push_back(shape.empty() ? 0 : shape[axis]);
  }
  if (elements.empty()) return;
  const auto group = h5::create_group(file, "latent");
  h5::write_array<std::uint64_t>(group.get(), "offsets", offsets);
  h5::write_array<float>(group.get(), "data", elements);
  if (!said) return;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    h5::write_array<std::int64_t>(group.get(), kSizes[axis], sizes[axis]);
}

}  // namespace

void write_job(const std::filesystem::path& path, const Job& job) {
  const std::string what = "writing job file '" + path.string() + "'";
  job_detail::check_unique_ids(job, what);
  const Stores stores = stores_of(job, what);
  job_detail::PartFile part(path);
  auto file = h5::create_file(part.path());
  h5::write_attribute(file.get(), "format_version", layout::kJobVersion);
  if (!job.model.empty()) h5::write_attribute(file.get(), "model", job.model);
  h5::write_attribute(file.get(), "generate", dump(job.generate));
  write_inputs(file.get(), stores);
  write_own(file.get(), job);
  write_audio(file.get(), job, what);
  write_names(file.get(), job, "language", &Request::language);
  write_names(file.get(), job, "task", &Request::task);
  write_names(file.get(), job, "negative_prompt", &Request::negative_prompt);
  write_latents(file.get(), job, what);
  file.close(what);
  part.commit();
}

}  // namespace diffuse
