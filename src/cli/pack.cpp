// diffuse pack: a job spec or a list of prompts -> a job file.

#include <cstdio>

#include "cli/commands.hpp"
#include "job/job_file.hpp"
#include "job/spec.hpp"
#include "text/generate_options.hpp"

namespace diffuse {
namespace {

struct PackFlags {
  std::string spec;
  std::string output;
  std::string model;
};

int pack(const PackFlags& flags) {
  const auto check = [](const Json& object, const std::string& what) {
    check_autoregressive(parse_generate(object, what), what);
  };
  const auto job = read_spec(flags.spec, flags.model, check);
  write_job(flags.output, job);
  std::printf("%s: %zu requests%s%s\n", flags.output.c_str(), job.requests.size(),
              job.model.empty() ? "" : " for ", job.model.c_str());
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
