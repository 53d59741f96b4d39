#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.hpp"
#include "core/error.hpp"
#include "job/read_child.hpp"

namespace {

// Of the processes that a launcher starts, one speaks of the command line that they share.
bool first_of_all() {
  for (const auto* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  }
  return true;
}

int wrong_usage(const std::string& message) {
  if (first_of_all()) {
    std::fprintf(stderr, "diffuse%s\n", message.c_str());
  } else {
    // The launcher ends all ranks when one fails, so the first has to have spoken; its end ends this sleep.
    std::this_thread::sleep_for(std::chrono::seconds(10));
  }
  return static_cast<int>(diffuse::ExitCode::usage);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Diffuse runs one model over many machines, a slice of its layers a rank, and proves that splitting "
      "did not change "
      "what the model says."};
  app.name("diffuse");
  app.set_version_flag("--version", "diffuse " DIFFUSE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 the verification found a difference, 2 usage, 65 bad data, 66 missing input, 69 "
      "refused,\n"
      "70 internal, 74 I/O, 75 stopped: the same command goes on.");
  const std::vector<std::string> command_line(argv, argv + argc);
  diffuse::ChosenCommand chosen;
  diffuse::add_check(app, chosen);
  diffuse::add_plan(app, chosen);
  diffuse::add_pack(app, chosen);
  diffuse::add_run(app, chosen, command_line);
  diffuse::add_verify(app, chosen, command_line);
  diffuse::add_compare(app, chosen);
  diffuse::add_show(app, chosen);
  diffuse::add_export(app, chosen);
  diffuse::add_merge(app, chosen);
  diffuse::add_bench(app, chosen);
  for (auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    command->set_version_flag("--version", "diffuse " DIFFUSE_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& problem) {
    const auto subcommands = app.get_subcommands();
    if (subcommands.empty() && argc > 1)
      return wrong_usage(": '" + command_line[1] + "' is no command; see diffuse --help");
    const auto command = subcommands.empty() ? std::string() : " " + subcommands.front()->get_name();
    return wrong_usage(command + ": " + problem.what() + "; see diffuse" + command + " --help");
  }
  const int code = chosen();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    diffuse::throw_errno("writing to the standard output");
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (diffuse::is_read_h5_command(argc, argv)) return diffuse::read_h5_child(argc, argv);
  try {
    return run(argc, argv);
  } catch (const diffuse::Error& problem) {
    if (problem.code() == diffuse::ExitCode::usage) return wrong_usage(std::string(": ") + problem.what());
    std::fprintf(stderr, "diffuse: %s\n", problem.what());
    return static_cast<int>(problem.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "diffuse: out of memory\n");
    return static_cast<int>(diffuse::ExitCode::internal);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "diffuse: internal error: %s\n", problem.what());
    return static_cast<int>(diffuse::ExitCode::internal);
  }
}
