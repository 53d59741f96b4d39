#pragma once
// Chat templates: messages -> the text that a model was trained on, by a small bounded Jinja interpreter with
// the environment that transformers sets up (trim_blocks, lstrip_blocks, loop controls, raise_exception,
// tojson).
//
// A template is a stranger's program: it can read only what it is given, and steps, output and depth are
// bounded. The rendered text holds every special token; encode it with add_special = false, or bos stands
// there twice.

#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace diffuse {

// JSON whose objects keep the order of their keys, which templates print.
using OrderedJson = nlohmann::ordered_json;

// Parses like parse_json (same depth limit, same errors) and keeps the order of keys.
OrderedJson parse_ordered_json(std::string_view text, const std::string& what);

struct TemplateLimits {
  std::uint64_t steps = 5'000'000;           // evaluated nodes and touched elements
  std::uint64_t output_bytes = 64ULL << 20;  // text made, intermediate strings included
  int depth = 200;                           // nested expressions, blocks and macro calls
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // What the template sees beside the messages: "bos_token" and its kin (Tokenizer::special_tokens()).
  std::vector<std::pair<std::string, std::string>> special_tokens;
  OrderedJson tools;                              // null or a list
  OrderedJson documents;                          // null or a list
  OrderedJson variables = OrderedJson::object();  // further names, e.g. {"enable_thinking": false}
  std::tm now = std::tm{};                        // what strftime_now prints; same in every rank and run
  TemplateLimits limits;
};

class ChatTemplate {
 public:
  // Finds a folder's template: chat_template.jinja, else `chat_template` of tokenizer_config.json (a string,
  // or a list of named ones, of which `name` is taken, "default" first). Nothing where there is none. Throws
  // bad data where the template is not valid, refused where it uses what this interpreter does not have.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder,
                                          const std::string& name = "default");

  // Parses a template. `what` names it in errors.
  ChatTemplate(std::string_view source, std::string what);

  // Renders messages (a list of objects with role and content). Content is brought to the form that this
  // template reads: text parts are joined for one that wants a string, a string becomes one text part for one
  // that wants a list. Throws bad data where a message is malformed, where a part is not text and the
  // template has no place for it, where the template raises an exception, or where a limit is reached.
  std::string render(const OrderedJson& messages, const ChatOptions& options) const;

  // Renders with exactly these variables: what jinja2 would print.
  std::string render_raw(const OrderedJson& variables, const ChatOptions& options = {}) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace diffuse
