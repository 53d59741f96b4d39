// What a comparison found, as a sentence and as JSON.

#include <string>
#include <vector>

#include "verify/compare.hpp"
#include "verify/json_fields.hpp"

namespace diffuse {
namespace {

// "2 requests (1 answered), 1 samples, 6 tokens and 24 digests": without what there is none of.
std::string size_of(const Counts& counts) {
  std::vector<std::string> parts = {std::to_string(counts.samples) + " samples"};
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count > 0) parts.push_back(std::to_string(count) + " " + what);
  };
  add(counts.tokens, "tokens");
  add(counts.digests, "digests");
  add(counts.media, "elements of media");
  std::string text =
      std::to_string(counts.requests) + " requests (" + std::to_string(counts.answered) + " answered)";
  for (const auto& part : parts) text += (&part == &parts.back() ? " and " : ", ") + part;
  return text;
}

}  // namespace

std::string verdict(const Comparison& comparison) {
  const auto& counts = comparison.compared;
  if (!comparison.agrees()) {
    const auto& differences = comparison.differences;
    return "different: " + std::to_string(differences.size()) +
           (differences.size() == 1 ? " difference, " : " differences, the first: ") +
           sentence(differences.front());
  }
  const auto size = size_of(counts);
  if (counts.answered == 0) return "nothing differs, but no request is answered in both results: " + size;
  if (comparison.across ? comparison.across->held() == 0 : counts.values() == 0)
    return "nothing differs, but nothing that was answered could be compared: " + size;
  if (comparison.across) return "they agree: " + sentence(*comparison.across);
  return "identical: " + size + " are the same, bit for bit";
}

Json to_json(const Counts& counts) {
  return Json{{"requests", counts.requests}, {"answered", counts.answered}, {"samples", counts.samples},
              {"tokens", counts.tokens},     {"digests", counts.digests},   {"media", counts.media}};
}

Counts counts_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return Counts{.requests = fields.count("requests"),
                .answered = fields.count("answered"),
                .samples = fields.count("samples"),
                .tokens = fields.count("tokens"),
                .digests = fields.count("digests"),
                .media = fields.count("media")};
}

Json to_json(const Comparison& comparison) {
  Json differences = Json::array();
  for (const auto& difference : comparison.differences) differences.push_back(to_json(difference));
  return Json{{"identical", comparison.identical()},
              {"agrees", comparison.agrees()},
              {"compared", to_json(comparison.compared)},
              {"differences", std::move(differences)},
              {"notes", comparison.notes},
              {"across", comparison.across ? to_json(*comparison.across) : Json(nullptr)}};
}

}  // namespace diffuse
