#include "text/post_processor.hpp"

#include <string>

#include "core/error.hpp"
#include "text/element.hpp"

namespace diffuse {
namespace {

std::vector<std::int32_t> ids_of(const Json& element, const std::string& name, const std::string& where) {
  const auto tokens = element.find("special_tokens");
  if (tokens == element.end() || !tokens->is_object() || !tokens->contains(name) ||
      !(*tokens)[name].is_object())
    throw_bad_data(where + ": 'special_tokens' lacks " + in_quotes(name));
  std::vector<std::int32_t> ids;
  for (const auto& id : require_array((*tokens)[name], "ids", where)) ids.push_back(token_id(id, where));
  return ids;
}

PostProcessor template_of(const Json& element, const std::string& where) {
  PostProcessor made;
  bool text_seen = false;
  for (const auto& piece : require_array(element, "single", where)) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (text_seen) throw_refused(where + ": a template that repeats the text is not known to this build");
      text_seen = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken") || !piece["SpecialToken"].is_object())
      throw_bad_data(where + ": 'single' holds something that is neither a Sequence nor a SpecialToken");
    const auto ids = ids_of(element, require_string(piece["SpecialToken"], "id", where), where);
    auto& side = text_seen ? made.behind : made.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) throw_refused(where + ": a template without the text is not known to this build");
  return made;
}

// ["[SEP]", 102]
std::int32_t named_id(const Json& element, const char* key, const std::string& where) {
  const auto& pair = require_array(element, key, where);
  if (pair.size() != 2) throw_bad_data(where + ": '" + key + "' must be a token and its id");
  return token_id(pair[1], where);
}

}  // namespace

PostProcessor PostProcessor::from_json(const Json& element, const std::string& where) {
  if (element.is_null()) return {};
  const auto type = element_type(element, where);
  const auto here = where + " " + in_quotes(type);
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return template_of(element, here);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return {{named_id(element, "cls", here)}, {named_id(element, "sep", here)}};
  if (type == "Sequence") {
    PostProcessor all;
    for (const auto& inner : require_array(element, "processors", here)) {
      const auto made = from_json(inner, where);
      all.before.insert(all.before.begin(), made.before.begin(), made.before.end());
      all.behind.insert(all.behind.end(), made.behind.begin(), made.behind.end());
    }
    return all;
  }
  throw_refused(here + " is not known to this build");
}

}  // namespace diffuse
