// The part of a report that concerns two kinds of device.

#include <array>
#include <cstdio>

#include "core/error.hpp"
#include "verify/json_fields.hpp"
#include "verify/report.hpp"
#include "verify/tolerance.hpp"

namespace diffuse {
namespace {

std::string shown(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

}  // namespace

AcrossRow make_across(RunFigures run, const Comparison& comparison) {
  if (!comparison.across) throw_internal("two runs on one kind of device are compared in bits");
  AcrossRow row{.run = std::move(run),
                .across = *comparison.across,
                .compared = comparison.compared,
                .differences = comparison.differences.size(),
                .first = std::nullopt,
                .notes = comparison.notes};
  if (!comparison.agrees()) row.first = comparison.differences.front();
  return row;
}

std::string verdict(const AcrossRow& row) {
  if (!row.agrees()) {
    return "The devices do not agree: " + std::to_string(row.differences) +
           (row.differences == 1 ? " difference" : " differences") +
           " above the tolerance, the first: " + (row.first ? sentence(*row.first) : "no details") + ".";
  }
  if (row.compared.answered == 0) return "Of the devices nothing is known: both answered no request.";
  if (!row.compared_something())
    return "Of the devices nothing is known: nothing of what both answered was held against the other.";
  return "The devices agree: " + sentence(row.across) + ".";
}

std::string across_section(const AcrossRow& row) {
  std::string text = "\n### Across devices\n\n**" + escaped_markdown(verdict(row)) + "**\n";
  for (const auto& note : row.notes) text += "\n- " + escaped_markdown(note) + "\n";
  text +=
      "\nWhat an operation may differ by, in this compute mode:\n\n| operation | allowed | reason "
      "|\n|---|--:|---|\n";
  for (const auto& each : tolerances()) {
    if (each.compute != row.across.compute) continue;
    text += "| " + std::string(name_of(each.operation)) + " | " +
            (each.allowed == 0 ? "the same bits" : shown(each.allowed)) + " | " + std::string(each.reason) +
            " |\n";
  }
  return text;
}

Json to_json(const AcrossRow& row) {
  return Json{{"run", to_json(row.run)},
              {"agrees", row.agrees()},
              {"across", to_json(row.across)},
              {"compared", to_json(row.compared)},
              {"differences", row.differences},
              {"first_difference", row.first ? to_json(*row.first) : Json(nullptr)},
              {"notes", row.notes},
              {"tolerances", to_json(tolerances())}};
}

AcrossRow across_row_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  AcrossRow row{.run = run_from_json(fields.at("run"), fields.path("run")),
                .across = across_from_json(fields.at("across"), fields.path("across")),
                .compared = counts_from_json(fields.at("compared"), fields.path("compared")),
                .differences = fields.count("differences"),
                .first = std::nullopt,
                .notes = {}};
  for (const auto& note : fields.array("notes")) {
    if (!note.is_string()) fields.refuse("notes", "a list of strings");
    row.notes.push_back(note.get<std::string>());
  }
  const auto& first = fields.at("first_difference");
  if (!first.is_null()) row.first = difference_from_json(first, fields.path("first_difference"));
  if (fields.flag("agrees") != row.agrees() || row.first.has_value() == row.agrees())
    throw_bad_data(where + ": 'agrees', 'differences' and 'first_difference' contradict each other");
  return row;
}

}  // namespace diffuse
