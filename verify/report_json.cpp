#include <cmath>

#include "core/error.hpp"
#include "verify/json_fields.hpp"
#include "verify/report.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kFormatVersion = 1;

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::vector<std::string> texts(const JsonFields& fields, const std::string& key) {
  std::vector<std::string> out;
  for (const auto& item : fields.array(key)) {
    if (!item.is_string()) fields.refuse(key, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

Json row_json(const SplitRow& row) {
  return Json{{"run", to_json(row.run)},
              {"identical", row.identical()},
              {"compared", to_json(row.compared)},
              {"differences", row.differences},
              {"first_difference", row.first ? to_json(*row.first) : Json(nullptr)},
              {"notes", row.notes}};
}

SplitRow read_row(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  SplitRow row{.run = run_from_json(fields.at("run"), fields.path("run")),
               .compared = counts_from_json(fields.at("compared"), fields.path("compared")),
               .differences = fields.count("differences"),
               .first = std::nullopt,
               .notes = texts(fields, "notes")};
  const auto& first = fields.at("first_difference");
  if (!first.is_null()) row.first = difference_from_json(first, fields.path("first_difference"));
  if (fields.flag("identical") != row.identical() || row.first.has_value() == row.identical())
    throw_bad_data(where + ": 'identical', 'differences' and 'first_difference' contradict each other");
  return row;
}

Json transformers_json(const AgainstTransformers& against) {
  return Json{{"version", against.version},
              {"dtype", against.dtype},
              {"margin", finite(against.margin)},
              {"judged", against.judged},
              {"equal", against.equal},
              {"close", against.close},
              {"requests", against.requests},
              {"requests_equal", against.requests_equal},
              {"first_difference", against.first_difference}};
}

AgainstTransformers read_transformers(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return AgainstTransformers{.version = fields.text("version"),
                             .dtype = fields.text("dtype"),
                             .margin = fields.number("margin"),
                             .judged = fields.count("judged"),
                             .equal = fields.count("equal"),
                             .close = fields.count("close"),
                             .requests = fields.count("requests"),
                             .requests_equal = fields.count("requests_equal"),
                             .first_difference = fields.text("first_difference")};
}

}  // namespace

Json to_json(const RunFigures& run) {
  return Json{{"ranks", run.ranks},
              {"slices", run.slices},
              {"threads", run.threads},
              {"patches", run.patches},
              {"groups", run.groups},
              {"seconds", finite(run.seconds)},
              {"tokens_per_second", finite(run.tokens_per_second)},
              {"busy", finite(run.busy)}};
}

RunFigures run_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return RunFigures{.ranks = fields.integer("ranks"),
                    .slices = fields.text("slices"),
                    .threads = fields.integer("threads"),
                    .patches = fields.integer("patches"),
                    .groups = fields.integer("groups"),
                    .seconds = fields.number("seconds"),
                    .tokens_per_second = fields.number("tokens_per_second"),
                    .busy = fields.number("busy")};
}

Json to_json(const VerificationReport& report) {
  Json rows = Json::array();
  for (const auto& row : report.rows) rows.push_back(row_json(row));
  Json patched = Json::array();
  for (const auto& row : report.patched) patched.push_back(to_json(row));
  return Json{
      {"format_version", kFormatVersion},
      {"verdict", verdict(report)},
      {"proven", proven(report)},
      {"passed", passed(report)},
      {"model", report.model},
      {"tensors_sha256", report.tensors_sha256},
      {"shape", report.shape},
      {"depth", report.depth},
      {"compute_mode", report.compute_mode},
      {"simd_target", report.simd_target},
      {"hosts", report.hosts},
      {"versions", report.versions},
      {"reference", to_json(report.reference)},
      {"rows", std::move(rows)},
      {"patched", std::move(patched)},
      {"across", report.across ? to_json(*report.across) : Json(nullptr)},
      {"transformers", report.transformers ? transformers_json(*report.transformers) : Json(nullptr)}};
}

VerificationReport report_from_json(const Json& value) {
  const JsonFields fields(value, "verification report");
  if (fields.integer("format_version") != kFormatVersion)
    fields.refuse("format_version", std::to_string(kFormatVersion) + ", the one that this program reads");
  VerificationReport report{.model = fields.text("model"),
                            .tensors_sha256 = fields.text("tensors_sha256"),
                            .shape = fields.text("shape"),
                            .depth = fields.integer("depth"),
                            .compute_mode = fields.text("compute_mode"),
                            .simd_target = fields.text("simd_target"),
                            .hosts = texts(fields, "hosts"),
                            .versions = {},
                            .reference = run_from_json(fields.at("reference"), fields.path("reference")),
                            .rows = {},
                            .patched = {},
                            .across = std::nullopt,
                            .transformers = std::nullopt};
  const JsonFields versions(fields.at("versions"), fields.path("versions"));
  for (const auto& [name, version] : fields.at("versions").items())
    report.versions[name] = versions.text(name);
  const auto& rows = fields.array("rows");
  for (std::size_t i = 0; i < rows.size(); ++i)
    report.rows.push_back(read_row(rows[i], fields.path("rows") + "[" + std::to_string(i) + "]"));
  const auto& patched = fields.array("patched");
  for (std::size_t i = 0; i < patched.size(); ++i)
    report.patched.push_back(
        patched_row_from_json(patched[i], fields.path("patched") + "[" + std::to_string(i) + "]"));
  if (const auto& across = fields.at("across"); !across.is_null())
    report.across = across_row_from_json(across, fields.path("across"));
  const auto& against = fields.at("transformers");
  if (!against.is_null()) report.transformers = read_transformers(against, fields.path("transformers"));
  return report;
}

}  // namespace diffuse
