#include "text/chat_template.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"
#include "text/jinja/machine.hpp"
#include "text/jinja/parser.hpp"

namespace diffuse {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = 4U << 20;

jinja::Value value_of(const OrderedJson& json) {
  using jinja::Value;
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return {};
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(static_cast<jinja::Int>(json.get<std::int64_t>()));
    case OrderedJson::value_t::number_unsigned:
      return Value(static_cast<jinja::Int>(json.get<std::uint64_t>()));
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return jinja::make_text(json.get<std::string>());
    case OrderedJson::value_t::array: {
      jinja::Values items;
      for (const auto& item : json) items.push_back(value_of(item));
      return jinja::make_sequence(std::move(items));
    }
    case OrderedJson::value_t::object: {
      jinja::Entries entries;
      for (const auto& [key, item] : json.items())
        entries.emplace_back(jinja::make_text(key), value_of(item));
      return jinja::make_mapping(std::move(entries));
    }
    default:
      throw_bad_data("a value that is no JSON reached a chat template");
  }
}

bool is_text_part(const OrderedJson& part) {
  return part.is_object() && part.value("type", "") == "text" && part.contains("text") &&
         part["text"].is_string();
}

OrderedJson text_part(const std::string& text) {
  OrderedJson part = OrderedJson::object();
  part["type"] = "text";
  part["text"] = text;
  return part;
}

// What transformers does before rendering: keys that are null are not there, and reasoning is found by its
// old names as well.
OrderedJson normalized(const OrderedJson& message) {
  OrderedJson kept = OrderedJson::object();
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) kept[key] = value;
  for (const auto* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!kept.contains(name)) continue;
    const OrderedJson reasoning = kept[name];
    OrderedJson with = OrderedJson::object();
    with["thinking"] = reasoning;
    for (const auto& [key, value] : kept.items()) with[key] = value;
    with["reasoning_content"] = reasoning;
    return with;
  }
  return kept;
}

}  // namespace

OrderedJson parse_ordered_json(std::string_view text, const std::string& what) {
  try {
    return OrderedJson::parse(
        text.begin(), text.end(), [&](int depth, OrderedJson::parse_event_t event, OrderedJson&) {
          using Event = OrderedJson::parse_event_t;
          if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxJsonDepth)
            throw_bad_data(what + ": nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
          return true;
        });
  } catch (const OrderedJson::exception& problem) {
    throw_bad_data(what + ": not valid JSON (" + problem.what() + ")");
  }
}

// How a template takes a message's content; found out by rendering one message both ways.
enum class Content { text, parts, both };

struct ChatTemplate::Program {
  std::string what;
  jinja::Block block;
  Content content = Content::both;

  std::string run(const OrderedJson& variables, const ChatOptions& options) const;
  // Whether the template can render a message of this content, and its text comes through.
  bool takes(const OrderedJson& sample, const std::string& marker) const;
  void probe();
  OrderedJson shaped(const OrderedJson& content, std::size_t index) const;
};

std::string ChatTemplate::Program::run(const OrderedJson& variables, const ChatOptions& options) const {
  const auto& limits = options.limits;
  jinja::Machine machine({limits.steps, limits.output_bytes, limits.depth}, options.now);
  try {
    jinja::Entries entries;
    for (const auto& [name, value] : variables.items())
      entries.emplace_back(jinja::make_text(name), value_of(value));
    return machine.render(block, entries);
  } catch (const jinja::TemplateError& problem) {
    const auto message = what + ": " + problem.what();
    if (problem.unknown()) throw_refused(message + " to this build");
    throw_bad_data(message);
  }
}

bool ChatTemplate::Program::takes(const OrderedJson& sample, const std::string& marker) const {
  OrderedJson message = OrderedJson::object();
  message["role"] = "user";
  message["content"] = sample;
  OrderedJson variables = OrderedJson::object();
  variables["messages"] = OrderedJson::array({message});
  variables["add_generation_prompt"] = false;
  for (const auto* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) variables[name] = "";
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  try {
    const auto text = run(variables, {});
    // A list that is printed as Python prints it did not come through.
    return text.find(marker) != std::string::npos && text.find("'text'") == std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

void ChatTemplate::Program::probe() {
  const std::string marker = "DiffuseProbe";
  const bool text = takes(marker, marker);
  const bool parts = takes(OrderedJson::array({text_part(marker)}), marker);
  if (text != parts) content = text ? Content::text : Content::parts;
}

OrderedJson ChatTemplate::Program::shaped(const OrderedJson& given, std::size_t index) const {
  if (content == Content::parts && given.is_string())
    return OrderedJson::array({text_part(given.get<std::string>())});
  if (content != Content::text || !given.is_array()) return given;
  std::string joined;
  for (const auto& part : given) {
    if (!is_text_part(part)) {
      throw_bad_data(what + ": message " + std::to_string(index) +
                     " holds a part that is not text, and this template has no place for one");
    }
    if (&part != &given.front()) joined += '\n';
    joined += part["text"].get<std::string>();
  }
  return joined;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string what) {
  auto program = std::make_shared<Program>();
  program->what = std::move(what);
  if (source.size() > kMaxTemplateBytes) throw_refused(program->what + ": a template of more than 4 MiB");
  try {
    program->block = jinja::parse_template(is_valid_utf8(source) ? std::string(source) : repair_utf8(source));
  } catch (const jinja::TemplateError& problem) {
    const auto message = program->what + ": " + problem.what();
    if (problem.unknown()) throw_refused(message + " to this build");
    throw_bad_data(message);
  }
  program->probe();
  program_ = std::move(program);
}

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path& folder, const std::string& name) {
  const auto own = folder / "chat_template.jinja";
  if (std::filesystem::exists(own))
    return ChatTemplate(read_file(own, kMaxTemplateBytes), "'" + own.string() + "'");
  const auto path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto what = "'" + path.string() + "': chat_template";
  const auto config = read_json(path);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return ChatTemplate(found->get<std::string>(), what);
  if (!found->is_array()) throw_bad_data(what + " must be a string or a list of named ones");
  for (const auto& entry : *found) {
    if (!entry.is_object()) throw_bad_data(what + " holds something that is no object");
    if (require_string(entry, "name", what) == name)
      return ChatTemplate(require_string(entry, "template", what), what + " " + in_quotes(name));
  }
  throw_bad_data(what + " has none by the name " + in_quotes(name));
}

std::string ChatTemplate::render(const OrderedJson& messages, const ChatOptions& options) const {
  const auto& what = program_->what;
  if (!messages.is_array() || messages.empty())
    throw_bad_data(what + ": messages must be a list that is not empty");
  OrderedJson shaped = OrderedJson::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (!message.is_object() || role == message.end() || !role->is_string())
      throw_bad_data(what + ": message " + std::to_string(i) + " must be an object with a role");
    auto kept = normalized(message);
    if (const auto content = kept.find("content"); content != kept.end())
      *content = program_->shaped(*content, i);
    shaped.push_back(std::move(kept));
  }
  OrderedJson variables = OrderedJson::object();
  for (const auto& [name, text] : options.special_tokens) variables[name] = text;
  for (const auto& [name, value] : options.variables.items()) variables[name] = value;
  variables["messages"] = std::move(shaped);
  variables["tools"] = options.tools;
  variables["documents"] = options.documents;
  variables["add_generation_prompt"] = options.add_generation_prompt;
  return program_->run(variables, options);
}

std::string ChatTemplate::render_raw(const OrderedJson& variables, const ChatOptions& options) const {
  return program_->run(variables, options);
}

}  // namespace diffuse
