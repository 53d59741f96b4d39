#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "core/error.hpp"
#include "job/read_child.hpp"

namespace {

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& problem) {
    app.exit(problem);
    return static_cast<int>(diffuse::ExitCode::usage);
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  if (diffuse::is_read_h5_command(argc, argv)) return diffuse::read_h5_child(argc, argv);
  try {
    return run(argc, argv);
  } catch (const diffuse::Error& problem) {
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
