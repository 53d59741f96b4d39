// diffuse pack: a job spec or a list of prompts -> a job file.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/safetensors.hpp"
#include "cli/commands.hpp"
#include "cli/model.hpp"
#include "cli/places.hpp"
#include "cli/prepared_job.hpp"
#include "core/error.hpp"
#include "job/job_file.hpp"
#include "job/spec.hpp"
#include "media/sound.hpp"
#include "text/generate_options.hpp"
#include "text/idle_options.hpp"
#include "text/speech_options.hpp"

namespace diffuse {
namespace {

struct PackFlags {
  std::string spec;
  std::string output;
  std::string model;
};

// Speech's options are for requests with sound; of the others no key is known that means nothing to them.
// What a request says is checked over the job's defaults, and those by the requests that follow them.
void check_options(const Job& job, const std::string& what) {
  const auto with_sound =
      std::ranges::count_if(job.requests, [](const Request& r) { return r.audio.has_value(); });
  const auto of_job = what + ": generate";
  const auto speech = with_sound > 0 ? parse_speech_options(job.generate, of_job) : SpeechOptions();
  const auto text = parse_generate(with_sound > 0 ? without_speech_keys(job.generate) : job.generate, of_job);
  IdleDefaults idle(job.generate);
  for (const auto& request : job.requests) {
    const auto where = what + ": request '" + request.id + "'";
    const auto own = where + ": generate";
    if (request.audio) {
      auto options = parse_speech_options(request.generate, own, speech);
      set_language(options, request.language, where);
      if (!std::holds_alternative<NoText>(request.input)) continue;
      check_idle(request.generate, options, own);
      idle.see([&](const std::string& key) { return why_idle(key, options); });
    } else {
      auto options = parse_generate(request.generate, own, text);
      settle_sampling(options, own);
      check_autoregressive(options, own);
      check_idle(request.generate, options, own);
      idle.see([&](const std::string& key) { return why_idle(key, options); });
    }
  }
  idle.check(of_job);
}

// A job that is packed again takes its own place, and no other file's.
void check_output(const PackFlags& flags) {
  check_place(flags.output);
  check_apart(flags.output, flags.spec);
  if (!std::filesystem::exists(flags.output)) return;
  try {
    read_job(flags.output);
  } catch (const Error& error) {
    throw_usage("writing '" + flags.output +
                "': a file that is no job stands there; give the output another name (" + error.what() + ")");
  }
}

// What a run would say of this job, where the model's folder is at hand. Warnings, for the job may be meant
// for another machine, where the folder is another.
std::vector<std::string> what_a_run_would_say(Job job) {
  if (job.model.empty() || !std::filesystem::exists(job.model)) return {};
  // Hours of sound are wrong in nothing that its first second is not.
  for (auto& request : job.requests)
    if (request.audio && std::ssize(request.audio->samples) > request.audio->rate)
      request.audio->samples.resize(static_cast<std::size_t>(request.audio->rate));
  std::vector<std::string> problems;
  try {
    const auto model = open_model(job.model, LoadMode::mmap, {});
    constexpr auto kAnyMemory = std::numeric_limits<std::int64_t>::max() / kPageTokens;
    const auto add = [&](const auto& prepared) {
      for (const auto& request : prepared.requests)
        if (!request.problem.empty()) problems.push_back("request '" + request.id + "': " + request.problem);
    };
    std::visit(add, prepare_job(job, model, kAnyMemory, {}));
  } catch (const Error& problem) {
    problems.emplace_back(problem.what());
  }
  return problems;
}

int pack(const PackFlags& flags) {
  check_output(flags);
  const auto check = [](const Json& object, const std::string& what) {
    Json speech = Json::object();
    for (const auto& [key, value] : object.items())
      if (is_speech_key(key)) speech[key] = value;
    parse_speech_options(speech, what);
    parse_generate(without_speech_keys(object), what);
  };
  const auto read_latent = [](const std::filesystem::path& path) {
    auto tensor = read_only_tensor(path);
    return LatentFile{std::move(tensor.shape), std::move(tensor.values)};
  };
  auto job = read_spec(flags.spec, flags.model, check, {.sound = media::read_speech, .latent = read_latent});
  check_options(job, "job spec '" + flags.spec + "'");
  write_job(flags.output, job);
  const auto said = flags.output + ": " + std::to_string(job.requests.size()) + " requests" +
                    (job.model.empty() ? "" : " for " + job.model);
  for (const auto& problem : what_a_run_would_say(std::move(job)))
    std::fprintf(stderr, "warning: %s\n", problem.c_str());
  std::printf("%s\n", said.c_str());
  return 0;
}

}  // namespace

void add_pack(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<PackFlags>();
  auto* command = app.add_subcommand("pack", "Make a job file of a JSON spec, or of a JSONL of prompts");
  command->add_option("spec", flags->spec, "JOB.json or PROMPTS.jsonl")->required();
  command->add_option("-o,--output", flags->output, "Job file")->required();
  command->add_option("--model", flags->model, "Model folder; instead of the spec's");
  command->callback([flags, &chosen] { chosen = [flags] { return pack(*flags); }; });
}

}  // namespace diffuse
