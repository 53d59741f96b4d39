// diffuse merge: the results of an array job, or of runs that were stopped, as one.

#include <cstdio>
#include <filesystem>

#include "cli/commands.hpp"
#include "cli/places.hpp"
#include "job/merge.hpp"
#include "job/result_file.hpp"

namespace diffuse {

void add_merge(CLI::App& app, ChosenCommand& chosen) {
  struct Flags {
    std::string output;
    std::vector<std::string> parts;
  };
  auto flags = std::make_shared<Flags>();
  auto* command = app.add_subcommand("merge", "Make one result of several");
  command->add_option("output", flags->output, "Result file to write")->required();
  command->add_option("parts", flags->parts, "Result files")->required();
  command->callback([flags, &chosen] {
    chosen = [flags] {
      std::vector<Part> parts;
      for (const auto& path : flags->parts)
        parts.push_back({std::filesystem::path(path).stem().string(), read_result(path)});
      const auto merged = merge(parts);
      if (const auto kept = keep_earlier(flags->output)) std::fprintf(stderr, "%s\n", kept->c_str());
      write_result(flags->output, merged);
      std::printf("%s: %zu requests of %zu results\n", flags->output.c_str(), merged.requests.size(),
                  parts.size());
      return 0;
    };
  });
}

}  // namespace diffuse
