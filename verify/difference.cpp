#include "verify/difference.hpp"

#include <array>
#include <utility>

#include "verify/json_fields.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::pair<What, std::string_view>, 20> kNames = {{
    {What::missing_request, "missing_request"},
    {What::extra_request, "extra_request"},
    {What::order, "order"},
    {What::status, "status"},
    {What::message, "message"},
    {What::seed, "seed"},
    {What::prompt_tokens, "prompt_tokens"},
    {What::sample_count, "sample_count"},
    {What::tokens, "tokens"},
    {What::finish, "finish"},
    {What::media, "media"},
    {What::latent, "latent"},
    {What::text, "text"},
    {What::transcript, "transcript"},
    {What::logprobs, "logprobs"},
    {What::top_logprobs, "top_logprobs"},
    {What::missing_trace, "missing_trace"},
    {What::trace_shape, "trace_shape"},
    {What::digest, "digest"},
    {What::sha256, "sha256"},
}};

std::string layer_name(std::int64_t layer) {
  const std::string number = std::to_string(layer);
  return "layer " + number +
         (layer == 0 ? " (the front)" : " (after block " + std::to_string(layer - 1) + ")");
}

std::string owner(const Difference& difference) {
  std::string text = "request " + shown_safely(difference.request);
  if (difference.sample) text += ", sample " + std::to_string(*difference.sample);
  return text;
}

std::string position_and_layer(const Difference& difference) {
  std::string text;
  if (difference.position) text = "position " + std::to_string(*difference.position);
  if (difference.layer) text += ", " + layer_name(*difference.layer);
  return text;
}

Json nullable(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::string_view name_of(What what) {
  for (const auto& [value, name] : kNames) {
    if (value == what) return name;
  }
  return "?";
}

std::optional<What> what_from_name(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string shown_safely(std::string_view text) {
  std::string escaped = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string clean;
  for (const char c : escaped) {
    if (c == '\x7f')  // the one ASCII control character that JSON leaves as it is
      clean += "\\u007f";
    else
      clean += c;
  }
  return clean;
}

std::string place(const Difference& difference) {
  const std::string inside = position_and_layer(difference);
  return owner(difference) + (inside.empty() ? "" : ", " + inside);
}

std::string sentence(const Difference& difference) {
  if (difference.what == What::missing_request)
    return owner(difference) + " is missing from the split result";
  if (difference.what == What::extra_request) return owner(difference) + " is in the split result only";
  const std::string inside = position_and_layer(difference);
  std::string text = owner(difference) + ": " + std::string(name_of(difference.what)) + " differs";
  if (!inside.empty()) text += " first at " + inside;
  text += ": " + difference.whole + " in the whole result, " + difference.split + " in the split one";
  if (difference.count > 1) text += " (" + std::to_string(difference.count) + " differ)";
  return text;
}

Json to_json(const Difference& difference) {
  return Json{{"request", difference.request},
              {"sample", nullable(difference.sample)},
              {"what", std::string(name_of(difference.what))},
              {"position", nullable(difference.position)},
              {"layer", nullable(difference.layer)},
              {"count", difference.count},
              {"whole", difference.whole},
              {"split", difference.split}};
}

Difference difference_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  const auto what = what_from_name(fields.text("what"));
  if (!what) fields.refuse("what", "a known kind of difference");
  return Difference{.request = fields.text("request"),
                    .sample = fields.optional_integer("sample"),
                    .what = *what,
                    .position = fields.optional_integer("position"),
                    .layer = fields.optional_integer("layer"),
                    .count = fields.count("count"),
                    .whole = fields.text("whole"),
                    .split = fields.text("split")};
}

}  // namespace diffuse
