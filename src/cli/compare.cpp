// diffuse compare: two result files of one job.

#include <cstdio>

#include "cli/commands.hpp"
#include "core/error.hpp"
#include "job/merge.hpp"
#include "job/result_file.hpp"
#include "verify/compare.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kMostLines = 20;

struct CompareFlags {
  std::string whole;
  std::string split;
  bool json = false;
};

int run_compare(const CompareFlags& flags) {
  const auto comparison = compare(read_result(flags.whole), read_result(flags.split));
  if (flags.json) {
    std::printf("%s\n", to_json(comparison).dump(2).c_str());
  } else {
    std::printf("%s.\n", verdict(comparison).c_str());
    for (std::size_t i = 0; i < comparison.differences.size() && i < kMostLines; ++i) {
      std::printf("  %s\n", sentence(comparison.differences[i]).c_str());
    }
    if (comparison.differences.size() > kMostLines)
      std::printf("  and %zu more (--json has all)\n", comparison.differences.size() - kMostLines);
    if (comparison.across && !comparison.agrees())
      std::printf("note: %s\n", sentence(*comparison.across).c_str());
    for (const auto& note : comparison.notes) std::printf("note: %s\n", note.c_str());
  }
  return static_cast<int>(comparison.agrees() ? ExitCode::done : ExitCode::difference);
}

}  // namespace

void add_compare(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<CompareFlags>();
  auto* command = app.add_subcommand(
      "compare",
      "Compare two results of one job: bit for bit, and within tolerances between two kinds of device");
  command->add_option("whole", flags->whole, "Result file")->required();
  command->add_option("split", flags->split, "Result file")->required();
  command->add_flag("--json", flags->json, "For programs");
  command->callback([flags, &chosen] { chosen = [flags] { return run_compare(*flags); }; });
}

}  // namespace diffuse
