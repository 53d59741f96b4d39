#pragma once
// What `verify` found, as plain data: one row for every split that was held against the whole run. Rendered
// as Markdown for people, as JSON, and as columns for whoever stores it in HDF5.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"
#include "verify/compare.hpp"
#include "verify/difference.hpp"
#include "verify/patched.hpp"

namespace diffuse {

// How one run was cut and how fast it was.
struct RunFigures {
  std::int64_t ranks = 1;
  std::string slices;  // "0-7,8-23"
  std::int64_t threads = 1;
  std::int64_t patches = 1;  // 1: not patched
  std::int64_t groups = 1;   // of requests in flight
  double seconds = 0;
  double tokens_per_second = 0;
  double busy = 0;  // the share of ranks x time spent computing, 0 to 1

  bool operator==(const RunFigures&) const = default;
};

// One split run, and how it compares with the reference run.
struct SplitRow {
  RunFigures run;
  Counts compared;
  std::uint64_t differences = 0;
  std::optional<Difference> first;  // set exactly when there are differences
  std::vector<std::string> notes;

  bool identical() const { return differences == 0; }
  bool compared_something() const { return compared.answered > 0 && compared.values() > 0; }
  bool operator==(const SplitRow&) const = default;
};

// The reference run against transformers on the same requests. A position whose two best logits are closer
// than `margin` decides nothing and is not judged.
struct AgainstTransformers {
  std::string version;
  std::string dtype;
  double margin = 0;
  std::uint64_t judged = 0;          // positions, fed with transformers' own tokens
  std::uint64_t equal = 0;           // of them, with the same arg-max
  std::uint64_t close = 0;           // positions that were not judged
  std::uint64_t requests = 0;        // that also ran freely
  std::uint64_t requests_equal = 0;  // of them, with equal tokens up to the first close position
  std::string first_difference;      // one sentence; empty when there is none

  bool tokens_equal() const { return equal == judged && requests_equal == requests; }
  bool operator==(const AgainstTransformers&) const = default;
};

// The whole run of the card against the whole run of the CPU, in the same compute mode.
struct AcrossRow {
  RunFigures run;  // of the CPU
  Across across;
  Counts compared;
  std::uint64_t differences = 0;
  std::optional<Difference> first;  // set exactly when there are differences
  std::vector<std::string> notes;

  bool agrees() const { return differences == 0; }
  bool compared_something() const { return compared.answered > 0 && across.held() > 0; }
  bool operator==(const AcrossRow&) const = default;
};

struct VerificationReport {
  std::string model;  // the folder, as it was given
  std::string tensors_sha256;
  std::string shape;       // of the verdict: "autoregressive", …
  std::int64_t depth = 0;  // blocks
  std::string compute_mode;
  std::string simd_target;
  std::vector<std::string> hosts;
  std::map<std::string, std::string> versions;  // of this program and of what it runs on
  RunFigures reference;                         // the whole run that every row is held against
  std::vector<SplitRow> rows;
  std::vector<PatchedRow> patched;  // measured, and no part of what is proven
  std::optional<AcrossRow> across;
  std::optional<AgainstTransformers> transformers;

  bool operator==(const VerificationReport&) const = default;
};

SplitRow make_row(RunFigures run, const Comparison& comparison);

AcrossRow make_across(RunFigures run, const Comparison& comparison);  // of two kinds of device

// Whether every split is identical, and there is one, and each compared something, and the devices agree
// where two were compared.
bool proven(const VerificationReport& report);

// What exit code 0 stands for: something was asked for, and of all that was, something was compared; every
// split is identical, and two devices agree. How far patches are from the whole decides nothing.
bool passed(const VerificationReport& report);

// One sentence with a full stop: splitting changed nothing, or what it changed first, or why nothing is
// proven. One more where two devices were compared.
std::string verdict(const VerificationReport& report);

// Heading, verdict, facts of the run, a table with a row a run, notes, and the sections about two devices,
// with the table of tolerances, and about transformers.
std::string to_markdown(const VerificationReport& report);

// Numbers that are not finite become null, and NaN when they are read again.
Json to_json(const VerificationReport& report);

// Inverse of to_json. Throws bad data that names the member when one is missing, has another type, or when a
// row contradicts itself.
VerificationReport report_from_json(const Json& value);

// One entry a row, all of one length; -1 where a row has no such value.
struct ReportTable {
  std::vector<std::int64_t> ranks;
  std::vector<std::string> slices;
  std::vector<std::int64_t> threads;
  std::vector<std::int64_t> patches;
  std::vector<std::int64_t> groups;
  std::vector<std::uint8_t> identical;
  std::vector<std::uint64_t> requests;
  std::vector<std::uint64_t> answered;
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> tokens;
  std::vector<std::uint64_t> digests;
  std::vector<std::uint64_t> differences;
  std::vector<std::string> first_request;
  std::vector<std::string> first_what;  // empty where there is no difference
  std::vector<std::int64_t> first_sample;
  std::vector<std::int64_t> first_position;
  std::vector<std::int64_t> first_layer;
  std::vector<double> seconds;
  std::vector<double> tokens_per_second;
  std::vector<double> busy;
};

ReportTable columns(const VerificationReport& report);

// The parts of a report that concern two devices: a sentence with a full stop, a section, JSON and back.
std::string verdict(const AcrossRow& row);
std::string across_section(const AcrossRow& row);
Json to_json(const AcrossRow& row);
AcrossRow across_row_from_json(const Json& value, const std::string& where);  // throws bad data
Json to_json(const RunFigures& run);
RunFigures run_from_json(const Json& value, const std::string& where);  // throws bad data
std::string decimal(double value, int places);                          // \"-\" where it is not finite
std::string escaped_markdown(std::string_view text);  // neither ends a cell or a line nor opens markup

}  // namespace diffuse
