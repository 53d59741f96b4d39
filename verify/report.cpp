#include "verify/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace diffuse {
namespace {

// "38400" as "38,400".
std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string percent(double share) {
  return std::isfinite(share) ? decimal(share * 100, 0) + " %" : "-";
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return grouped(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string escaped(std::string_view text) {
  return escaped_markdown(text);
}

// "a, b and c".
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string run_name(const RunFigures& run) {
  std::string text = counted(static_cast<std::uint64_t>(run.ranks), "rank");
  if (run.patches > 1) text += " with " + std::to_string(run.patches) + " patches";
  return text;
}

std::vector<std::string> run_names(const std::vector<SplitRow>& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) {
    auto name = run_name(row.run);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

// The least that any of the rows compared.
Counts least(const std::vector<SplitRow>& rows) {
  Counts counts = rows.front().compared;
  for (const auto& row : rows) {
    counts.requests = std::min(counts.requests, row.compared.requests);
    counts.answered = std::min(counts.answered, row.compared.answered);
    counts.samples = std::min(counts.samples, row.compared.samples);
    counts.tokens = std::min(counts.tokens, row.compared.tokens);
    counts.digests = std::min(counts.digests, row.compared.digests);
    counts.media = std::min(counts.media, row.compared.media);
  }
  return counts;
}

std::string table_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const auto& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::vector<std::string> leading_cells(const std::string& name, const RunFigures& run) {
  return {name,
          std::to_string(run.ranks),
          escaped(run.slices),
          std::to_string(run.threads),
          std::to_string(run.patches),
          std::to_string(run.groups)};
}

// What the values that were compared are called, and how fast they were made: pictures have no tokens, and of
// sound they are codes.
struct Labels {
  std::string values;
  std::uint64_t Counts::*count = &Counts::tokens;
  std::string rate;  // empty: there is none
};

Labels labels_of(const Counts& counts) {
  if (counts.media == 0) return {"tokens", &Counts::tokens, "tokens/s"};
  if (counts.tokens == 0) return {"elements", &Counts::media, ""};
  return {"codes", &Counts::tokens, "positions/s"};
}

// Counts of the report's kind: of a run that was held against the whole one, or what patches are cut of.
Counts kind_of(const VerificationReport& report) {
  if (!report.rows.empty()) return report.rows.front().compared;
  if (report.across) return report.across->compared;
  Counts counts;
  counts.media = report.patched.empty() ? 0 : 1;
  return counts;
}

std::string table(const VerificationReport& report) {
  const auto labels = labels_of(kind_of(report));
  const auto finish = [&](std::vector<std::string> cells, const RunFigures& run) {
    cells.push_back(decimal(run.seconds, 2));
    if (!labels.rate.empty()) cells.push_back(decimal(run.tokens_per_second, 1));
    cells.push_back(percent(run.busy));
    return table_row(cells);
  };
  std::vector<std::string> head = {"run",         "ranks",   "slices",           "threads",
                                   "patches",     "groups",  "same bits",        "requests",
                                   labels.values, "digests", "first difference", "seconds"};
  if (!labels.rate.empty()) head.push_back(labels.rate);
  head.emplace_back("busy");
  auto text = table_row(head);
  text += std::string("|---|--:|---|--:|--:|--:|---|--:|--:|--:|---|--:|--:|") +
          (labels.rate.empty() ? "\n" : "--:|\n");
  auto cells = leading_cells("whole", report.reference);
  cells.insert(cells.end(), {"reference", "", "", "", ""});
  text += finish(std::move(cells), report.reference);
  for (const auto& row : report.rows) {
    cells = leading_cells("split", row.run);
    cells.insert(
        cells.end(),
        {row.identical() ? "yes" : "**no**", grouped(row.compared.requests),
         grouped(row.compared.*labels.count), grouped(row.compared.digests),
         row.first ? escaped(std::string(name_of(row.first->what)) + ": " + place(*row.first)) : ""});
    text += finish(std::move(cells), row.run);
  }
  return text;
}

std::string facts(const VerificationReport& report) {
  std::vector<std::string> versions;
  for (const auto& [name, version] : report.versions) versions.push_back(name + " " + version);
  std::string text = "- Model: " + escaped(report.model) + ", " + escaped(report.shape) + ", " +
                     counted(static_cast<std::uint64_t>(report.depth), "block") +
                     "; SHA-256 of the tensors " +
                     (report.tensors_sha256.empty() ? "not recorded" : escaped(report.tensors_sha256)) + "\n";
  text += "- Compute mode " + escaped(report.compute_mode) + ", SIMD target " + escaped(report.simd_target) +
          "\n";
  if (!report.hosts.empty()) text += "- Hosts: " + escaped(listed(report.hosts)) + "\n";
  if (!versions.empty()) text += "- Versions: " + escaped(listed(versions)) + "\n";
  return text;
}

std::string notes(const VerificationReport& report) {
  std::string text;
  for (const auto& row : report.rows) {
    if (row.first) {
      text += "- " + run_name(row.run) + ": " + counted(row.differences, "difference") +
              ", the first: " + escaped(sentence(*row.first)) + "\n";
    }
    for (const auto& note : row.notes) text += "- " + run_name(row.run) + ": " + escaped(note) + "\n";
  }
  return text.empty() ? text : "\n" + text;
}

std::string transformers_section(const AgainstTransformers& against) {
  std::array<char, 32> margin{};
  std::snprintf(margin.data(), margin.size(), "%g", against.margin);
  std::string text =
      "\n### Against transformers " + escaped(against.version) + " (" + escaped(against.dtype) + ")\n\n";
  if (against.judged == 0)
    text += "**Nothing was compared with transformers.**";
  else
    text += against.tokens_equal() ? "**The tokens are equal.**" : "**The tokens are not equal.**";
  text += " Fed with transformers' tokens, the best one is the same at " + grouped(against.equal) + " of " +
          counted(against.judged, "position") + " (" + grouped(against.close) +
          " more have two best logits closer than " + margin.data() +
          " and are not judged). Running freely, " + grouped(against.requests_equal) + " of " +
          counted(against.requests, "request") + " have the same tokens up to the first such position.\n";
  if (!against.first_difference.empty())
    text += "\nFirst difference: " + escaped(against.first_difference) + "\n";
  return text;
}

}  // namespace

SplitRow make_row(RunFigures run, const Comparison& comparison) {
  SplitRow row{.run = std::move(run),
               .compared = comparison.compared,
               .differences = comparison.differences.size(),
               .first = std::nullopt,
               .notes = comparison.notes};
  if (!comparison.agrees()) row.first = comparison.differences.front();
  return row;
}

namespace {

// Of what was asked for.
bool all_hold(const VerificationReport& report) {
  const auto identical = [](const SplitRow& row) { return row.identical() && row.compared_something(); };
  return std::ranges::all_of(report.rows, identical) &&
         (!report.across || (report.across->agrees() && report.across->compared_something()));
}

}  // namespace

bool proven(const VerificationReport& report) {
  return !report.rows.empty() && all_hold(report);
}

bool passed(const VerificationReport& report) {
  const auto measured = [](const PatchedRow& row) { return row.error.pixels > 0; };
  const bool asked = !report.rows.empty() || !report.patched.empty() || report.across;
  return asked && all_hold(report) && std::ranges::all_of(report.patched, measured);
}

namespace {

std::string split_verdict(const VerificationReport& report) {
  if (report.rows.empty())
    return report.across || !report.patched.empty()
               ? "No split was asked for."
               : "Nothing is proven: no split run was compared with the whole run.";
  std::vector<SplitRow> different;
  for (const auto& row : report.rows) {
    if (!row.identical()) different.push_back(row);
  }
  if (!different.empty()) {
    const auto& row = different.front();
    return "Splitting changed the answer: " + std::to_string(different.size()) + " of " +
           counted(report.rows.size(), "split run") + " differ from the whole run, first over " +
           run_name(row.run) + " (" + (row.first ? sentence(*row.first) : "no details") + ").";
  }
  const auto counts = least(report.rows);
  const std::string runs = "the runs over " + listed(run_names(report.rows));
  if (counts.answered == 0)
    return "Nothing is proven: " + runs + " hold no request that was answered in both runs.";
  if (counts.values() == 0)
    return "Nothing is proven: what was answered in " + runs + " holds no token, no digest and no medium.";
  std::vector<std::string> compared = {counted(counts.requests, "request")};
  if (counts.media == 0) compared.push_back(counted(counts.tokens, "token"));
  if (counts.media > 0 && counts.tokens > 0) compared.push_back(counted(counts.tokens, "code"));
  compared.push_back(counted(counts.digests, "digest") + " of layers");
  if (counts.media > 0) compared.push_back(counted(counts.media, "element") + " of media");
  return "Splitting changed nothing: " + runs + " gave the same bits as the whole run (" +
         run_name(report.reference) + "), each in " + listed(compared) + ".";
}

}  // namespace

std::string verdict(const VerificationReport& report) {
  return split_verdict(report) + (report.across ? " " + verdict(*report.across) : "");
}

// What others wrote could open markup.
std::string decimal(double value, int places) {
  if (!std::isfinite(value)) return "-";
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", places, value);
  return text.data();
}

std::string escaped_markdown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == '\t') {
      out += ' ';
      continue;
    }
    if (std::string_view("\\`*_|<>[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string to_markdown(const VerificationReport& report) {
  std::string text = "## Whole against split\n\n**" + escaped(verdict(report)) + "**\n\n" + facts(report) +
                     "\n" + table(report) + notes(report);
  if (!report.patched.empty()) text += patched_section(report.patched, report.reference.seconds);
  if (report.across) text += across_section(*report.across);
  if (report.transformers) text += transformers_section(*report.transformers);
  return text;
}

ReportTable columns(const VerificationReport& report) {
  ReportTable table;
  for (const auto& row : report.rows) {
    table.ranks.push_back(row.run.ranks);
    table.slices.push_back(row.run.slices);
    table.threads.push_back(row.run.threads);
    table.patches.push_back(row.run.patches);
    table.groups.push_back(row.run.groups);
    table.identical.push_back(row.identical() ? 1 : 0);
    table.requests.push_back(row.compared.requests);
    table.answered.push_back(row.compared.answered);
    table.samples.push_back(row.compared.samples);
    table.tokens.push_back(row.compared.tokens);
    table.digests.push_back(row.compared.digests);
    table.differences.push_back(row.differences);
    table.first_request.push_back(row.first ? row.first->request : "");
    table.first_what.push_back(row.first ? std::string(name_of(row.first->what)) : "");
    table.first_sample.push_back(row.first ? row.first->sample.value_or(-1) : -1);
    table.first_position.push_back(row.first ? row.first->position.value_or(-1) : -1);
    table.first_layer.push_back(row.first ? row.first->layer.value_or(-1) : -1);
    table.seconds.push_back(row.run.seconds);
    table.tokens_per_second.push_back(row.run.tokens_per_second);
    table.busy.push_back(row.run.busy);
  }
  return table;
}

}  // namespace diffuse
