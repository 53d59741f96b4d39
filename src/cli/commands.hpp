#pragma once
// The commands: each adds its flags to the program and, when it is chosen, runs and returns the exit code. An
// Error that leaves a command is printed by main and ends the program with its code; a command with ranks
// ends them all first.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace diffuse {

// Set by the chosen subcommand while the command line is parsed; called afterwards.
using ChosenCommand = std::function<int()>;

void add_check(CLI::App& app, ChosenCommand& chosen);
void add_plan(CLI::App& app, ChosenCommand& chosen);
void add_pack(CLI::App& app, ChosenCommand& chosen);
void add_run(CLI::App& app, ChosenCommand& chosen, const std::vector<std::string>& command_line);
void add_verify(CLI::App& app, ChosenCommand& chosen, const std::vector<std::string>& command_line);
void add_compare(CLI::App& app, ChosenCommand& chosen);
void add_show(CLI::App& app, ChosenCommand& chosen);
void add_export(CLI::App& app, ChosenCommand& chosen);
void add_merge(CLI::App& app, ChosenCommand& chosen);
void add_bench(CLI::App& app, ChosenCommand& chosen);

}  // namespace diffuse
