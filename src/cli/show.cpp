// diffuse show: a result on the terminal.

#include <cstdio>

#include "cli/commands.hpp"
#include "job/export.hpp"
#include "job/result_file.hpp"

namespace diffuse {
namespace {

struct ShowFlags {
  std::string result;
  std::string only;
  bool json = false;
  bool summary = false;
};

int show(const ShowFlags& flags) {
  const auto result = read_result(flags.result);
  const ShowOptions options{.texts = !flags.summary, .only = flags.only};
  const auto text = flags.json ? dump(show_json(result, options), 2) + "\n" : show_text(result, options);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_show(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<ShowFlags>();
  auto* command = app.add_subcommand("show", "Show a result");
  command->add_option("result", flags->result, "Result file")->required();
  command->add_option("--request", flags->only, "Only the request of this id");
  command->add_flag("--summary", flags->summary, "Without the texts");
  command->add_flag("--json", flags->json, "For programs");
  command->callback([flags, &chosen] { chosen = [flags] { return show(*flags); }; });
}

}  // namespace diffuse
