#include "text/jinja/machine.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "text/jinja/operators.hpp"

namespace diffuse::jinja {

// One level of nesting, of blocks, expressions and macro calls alike.
class Machine::Deeper {
 public:
  explicit Deeper(Machine& machine) : machine_(machine) {
    machine.step();
    if (machine.depth_ >= machine.limits_.depth)
      throw TemplateError("nests deeper than " + std::to_string(machine.limits_.depth));
    ++machine.depth_;
  }
  ~Deeper() { --machine_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Machine& machine_;
};

Machine::~Machine() {
  for (auto& scope : macro_scopes_) scope->variables.clear();
  for (auto& space : spaces_) space->entries.clear();
}

Value* Machine::Scope::find(std::string_view name) {
  for (auto& [key, value] : variables)
    if (key == name) return &value;
  return parent == nullptr ? nullptr : parent->find(name);
}

void Machine::Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Machine::ScopePtr Machine::inner(const ScopePtr& scope) {
  auto made = std::make_shared<Scope>();
  made->parent = scope;
  return made;
}

std::string Machine::render(const Block& block, const Entries& variables) {
  auto context = std::make_shared<Scope>();
  for (const auto& [name, value] : variables) context->set(to_text(name), value);
  const auto root = inner(context);
  try {
    run(block, root);
  } catch (const TemplateError& problem) {
    const auto where = line_ > 0 ? "line " + std::to_string(line_) + ": " : std::string();
    throw TemplateError(where + problem.what(), problem.unknown());
  }
  return std::move(out_);
}

void Machine::step(std::uint64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps || count > limits_.steps)
    throw TemplateError("takes more than " + std::to_string(limits_.steps) + " steps");
}

void Machine::expect_text(std::uint64_t bytes) {
  text_bytes_ += bytes;
  if (text_bytes_ > limits_.text_bytes || bytes > limits_.text_bytes)
    throw TemplateError("makes more than " + std::to_string(limits_.text_bytes) + " bytes of text");
}

Value Machine::text(std::string made, bool markup) {
  expect_text(made.size());
  return make_text(std::move(made), markup);
}

void Machine::write(std::string_view text) {
  expect_text(text.size());
  out_ += text;
}

std::string Machine::capture(const Block& block, const ScopePtr& scope) {
  auto outside = std::exchange(out_, {});
  run(block, scope);
  return std::exchange(out_, std::move(outside));
}

Values Machine::iterate(const Value& value) {
  if (value.is<Undefined>()) return {};
  if (const auto* sequence = value.as<Sequence>()) {
    step(sequence->items->size());
    if (sequence->taken == nullptr) return *sequence->items;
    const auto from = std::exchange(*sequence->taken, sequence->items->size());
    return {sequence->items->begin() + static_cast<std::ptrdiff_t>(from), sequence->items->end()};
  }
  Values items;
  if (const auto* mapping = value.as<Mapping>()) {
    step(mapping->entries->size());
    for (const auto& entry : *mapping->entries) items.push_back(entry.first);
    return items;
  }
  const auto* text = value.as<Text>();
  if (text == nullptr) throw TemplateError("'" + std::string(type_name(value)) + "' object is not iterable");
  for (std::size_t at = 0; at < text->text->size();) {
    const auto begin = at;
    take_utf8(*text->text, at);
    step();
    items.push_back(make_text(text->text->substr(begin, at - begin)));
  }
  return items;
}

Value Machine::call(const Value& callee, const Arguments& arguments) {
  const Deeper deeper(*this);
  if (const auto* undefined = callee.as<Undefined>()) undefined_used(*undefined);
  if (const auto* loop = callee.as<Loop>()) {
    if (!loop->state->recurse) throw TemplateError("the loop must have the 'recursive' marker to be called");
    if (arguments.positional.size() != 1 || !arguments.named.empty())
      throw TemplateError("loop() takes one argument");
    return loop->state->recurse(*this, arguments.positional.front());
  }
  const auto* function = callee.as<Function>();
  if (function == nullptr)
    throw TemplateError("'" + std::string(type_name(callee)) + "' object is not callable");
  return function->callable->call(*this, arguments);
}

// Statements

Machine::Flow Machine::run(const Block& block, const ScopePtr& scope) {
  const Deeper deeper(*this);
  for (const auto& statement : block) {
    step();
    line_ = statement.line;
    const auto flow = std::visit([&](const auto& kind) { return run(kind, scope); }, statement.kind);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Machine::Flow Machine::run(const Data& node, const ScopePtr&) {
  write(node.text);
  return Flow::next;
}

Machine::Flow Machine::run(const Output& node, const ScopePtr& scope) {
  write(to_text(evaluate(node.value, scope)));
  return Flow::next;
}

Machine::Flow Machine::run(const For& node, const ScopePtr& scope) {
  run_loop(node, evaluate(node.iterable, scope), scope, 1);
  return Flow::next;
}

void Machine::run_loop(const For& node, const Value& iterable, const ScopePtr& scope, std::size_t depth) {
  auto state = std::make_shared<LoopState>();
  state->depth = depth;
  for (auto& item : iterate(iterable)) {
    if (node.condition) {
      const auto test = inner(scope);
      assign(node.target, item, test);
      if (!is_true(evaluate(*node.condition, test))) continue;
    }
    state->items.push_back(std::move(item));
  }
  if (node.recursive) {
    // Holds the scope, not the loop: a loop that held itself would never be freed.
    state->recurse = [&node, scope, depth](Machine& machine, const Value& more) {
      auto outside = std::exchange(machine.out_, {});
      machine.run_loop(node, more, scope, depth + 1);
      return machine.text(std::exchange(machine.out_, std::move(outside)));
    };
  }
  const Value loop{Loop{state}};
  check_nesting(nesting_of(loop));
  for (; state->index < state->items.size(); ++state->index) {
    const auto body = inner(scope);
    body->set("loop", loop);
    assign(node.target, state->items[state->index], body);
    if (run(node.body, body) == Flow::leave) break;
  }
  if (state->items.empty()) run(node.otherwise, inner(scope));
}

Machine::Flow Machine::run(const If& node, const ScopePtr& scope) {
  for (const auto& [test, body] : node.branches)
    if (is_true(evaluate(test, scope))) return run(body, scope);
  return run(node.otherwise, scope);
}

Machine::Flow Machine::run(const Set& node, const ScopePtr& scope) {
  assign(node.target, evaluate(node.value, scope), scope);
  return Flow::next;
}

Machine::Flow Machine::run(const SetBlock& node, const ScopePtr& scope) {
  auto value = text(capture(node.body, inner(scope)));
  if (node.filter) value = apply_filter(std::get<Filter>(node.filter->kind), &value, scope);
  assign(node.target, value, scope);
  return Flow::next;
}

Machine::Flow Machine::run(const With& node, const ScopePtr& scope) {
  const auto body = inner(scope);
  // Values are those of the scope outside, whatever the names before them are set to.
  for (const auto& [target, value] : node.values) assign(target, evaluate(value, scope), body);
  return run(node.body, body);
}

Machine::Flow Machine::run(const Macro& node, const ScopePtr& scope) {
  scope->set(node.macro.name, make_macro(node.macro, scope));
  return Flow::next;
}

Machine::Flow Machine::run(const CallBlock& node, const ScopePtr& scope) {
  const auto& call_node = std::get<Call>(node.call.kind);
  auto arguments = evaluate(call_node.arguments, scope);
  arguments.named.emplace_back("caller", make_macro(node.caller, scope));
  write(to_text(call(evaluate(*call_node.callee, scope), arguments)));
  return Flow::next;
}

Machine::Flow Machine::run(const FilterBlock& node, const ScopePtr& scope) {
  const auto inside = text(capture(node.body, inner(scope)));
  write(to_text(apply_filter(std::get<Filter>(node.filter.kind), &inside, scope)));
  return Flow::next;
}

Machine::Flow Machine::run(const Scoped& node, const ScopePtr& scope) {
  return run(node.body, inner(scope));
}

void Machine::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.is_tuple) {
    const auto parts = iterate(value);
    if (parts.size() != target.parts.size()) {
      throw TemplateError("expected " + std::to_string(target.parts.size()) + " values to unpack, got " +
                          std::to_string(parts.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    scope->set(target.name, value);
    return;
  }
  const auto* found = scope->find(target.name);
  const auto* space = found == nullptr ? nullptr : found->as<Space>();
  if (space == nullptr)
    throw TemplateError("cannot assign attribute on non-namespace object '" + target.name + "'");
  if (target.attribute.starts_with('_'))
    throw TemplateError("a namespace's attribute cannot begin with an underscore");
  auto& content = *space->content;
  content.nesting = std::max(content.nesting, nesting_of(value) + 1);
  check_nesting(content.nesting);
  for (auto& [key, old] : content.entries) {
    if (to_text(key) != target.attribute) continue;
    old = value;
    return;
  }
  content.entries.emplace_back(make_text(target.attribute), value);
}

Value Machine::make_macro(const MacroBody& macro, const ScopePtr& scope) {
  macro_scopes_.push_back(scope);
  return make_function(macro.name, [&macro, scope](Machine& machine, const Arguments& arguments) {
    return machine.call_macro(macro, scope, arguments);
  });
}

Value Machine::call_macro(const MacroBody& macro, const ScopePtr& scope, const Arguments& arguments) {
  const auto& names = macro.parameters.names;
  const auto& defaults = macro.parameters.defaults;
  const auto body = inner(scope);
  const auto given = std::min(arguments.positional.size(), names.size());
  std::vector<bool> used(arguments.named.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i < given) {
      body->set(names[i], arguments.positional[i]);
      continue;
    }
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& entry) { return entry.first == names[i]; });
    if (named != arguments.named.end()) {
      used[static_cast<std::size_t>(named - arguments.named.begin())] = true;
      body->set(names[i], named->second);
    } else if (i + defaults.size() >= names.size()) {
      body->set(names[i], evaluate(defaults[i + defaults.size() - names.size()], body));
    } else {
      body->set(names[i], make_undefined("parameter '" + names[i] + "' was not provided"));
    }
  }
  Entries rest;
  if (macro.reads_caller) body->set("caller", make_undefined("No caller defined"));
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    const auto& [name, value] = arguments.named[i];
    if (name == "caller" && macro.reads_caller) {
      body->set(name, value);
    } else if (macro.reads_kwargs) {
      rest.emplace_back(make_text(name), value);
    } else {
      throw TemplateError("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (macro.reads_kwargs) body->set("kwargs", make_mapping(std::move(rest)));
  if (macro.reads_varargs) {
    Values more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                arguments.positional.end());
    body->set("varargs", make_sequence(std::move(more), Sequence::Kind::tuple));
  } else if (arguments.positional.size() > names.size()) {
    throw TemplateError("macro '" + macro.name + "' takes not more than " + std::to_string(names.size()) +
                        " arguments");
  }
  const auto line = line_;
  auto made = text(capture(macro.body, body));
  line_ = line;
  return made;
}

// Expressions

Value Machine::evaluate(const Expression& node, const ScopePtr& scope) {
  const Deeper deeper(*this);
  return std::visit([&](const auto& kind) { return evaluate(kind, scope); }, node.kind);
}

Value Machine::evaluate(const Literal& node, const ScopePtr&) {
  return node.value;
}

Value Machine::evaluate(const Name& node, const ScopePtr& scope) {
  if (const auto* found = scope->find(node.name)) return *found;
  if (const auto* found = find_global(node.name)) return *found;
  return make_undefined("'" + node.name + "' is undefined");
}

Value Machine::evaluate(const Items& node, const ScopePtr& scope) {
  Values items;
  for (const auto& item : node.items) items.push_back(evaluate(item, scope));
  return make_sequence(std::move(items), node.kind);
}

Value Machine::evaluate(const Pairs& node, const ScopePtr& scope) {
  Entries entries;
  for (const auto& [key_node, value_node] : node.pairs) {
    const auto key = evaluate(key_node, scope);
    auto value = evaluate(value_node, scope);
    const auto same = std::find_if(entries.begin(), entries.end(),
                                   [&](const auto& entry) { return equal(entry.first, key); });
    if (same == entries.end()) {
      entries.emplace_back(key, std::move(value));
    } else {
      same->second = std::move(value);
    }
  }
  return make_mapping(std::move(entries));
}

Value Machine::evaluate(const Negate& node, const ScopePtr& scope) {
  return negate(evaluate(*node.operand, scope));
}

Value Machine::evaluate(const Positive& node, const ScopePtr& scope) {
  return positive(evaluate(*node.operand, scope));
}

Value Machine::evaluate(const Not& node, const ScopePtr& scope) {
  return Value(!is_true(evaluate(*node.operand, scope)));
}

Value Machine::evaluate(const Logic& node, const ScopePtr& scope) {
  auto left = evaluate(*node.left, scope);
  return is_true(left) == node.is_and ? evaluate(*node.right, scope) : left;
}

Value Machine::evaluate(const Arithmetic& node, const ScopePtr& scope) {
  const auto left = evaluate(*node.left, scope);
  return arithmetic(*this, node.op, left, evaluate(*node.right, scope));
}

Value Machine::evaluate(const Compare& node, const ScopePtr& scope) {
  auto left = evaluate(*node.first, scope);
  for (const auto& [comparison, operand] : node.rest) {
    auto right = evaluate(operand, scope);
    if (!compare(*this, comparison, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Machine::evaluate(const Concat& node, const ScopePtr& scope) {
  std::string made;
  for (const auto& item : node.items) {
    const auto part = to_text(evaluate(item, scope));
    expect_text(part.size());
    made += part;
  }
  return make_text(std::move(made));
}

Value Machine::evaluate(const Conditional& node, const ScopePtr& scope) {
  if (is_true(evaluate(*node.test, scope))) return evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise, scope);
  return make_undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Machine::evaluate(const Attribute& node, const ScopePtr& scope) {
  return attribute(evaluate(*node.object, scope), node.name);
}

Value Machine::evaluate(const Subscript& node, const ScopePtr& scope) {
  const auto object = evaluate(*node.object, scope);
  return item(object, evaluate(*node.index, scope));
}

Value Machine::evaluate(const Slice& node, const ScopePtr& scope) {
  const auto part = [&](const ExpressionPtr& given) {
    return given == nullptr ? Value() : evaluate(*given, scope);
  };
  const auto object = evaluate(*node.object, scope);
  const auto start = part(node.start);
  const auto stop = part(node.stop);
  return slice(*this, object, start, stop, part(node.step));
}

Value Machine::evaluate(const Call& node, const ScopePtr& scope) {
  const auto callee = evaluate(*node.callee, scope);
  return call(callee, evaluate(node.arguments, scope));
}

Value Machine::evaluate(const Filter& node, const ScopePtr& scope) {
  return apply_filter(node, nullptr, scope);
}

Value Machine::apply_filter(const Filter& node, const Value* block_text, const ScopePtr& scope) {
  const Deeper deeper(*this);
  Value operand;
  if (node.operand == nullptr) {
    operand = *block_text;
  } else if (const auto* inside =
                 block_text == nullptr ? nullptr : std::get_if<Filter>(&node.operand->kind)) {
    operand = apply_filter(*inside, block_text, scope);
  } else {
    operand = evaluate(*node.operand, scope);
  }
  return filter(node.name, operand, evaluate(node.arguments, scope));
}

Value Machine::evaluate(const Test& node, const ScopePtr& scope) {
  const auto operand = evaluate(*node.operand, scope);
  return Value(test(node.name, operand, evaluate(node.arguments, scope)));
}

Arguments Machine::evaluate(const CallArguments& node, const ScopePtr& scope) {
  Arguments arguments;
  for (const auto& argument : node.positional) arguments.positional.push_back(evaluate(argument, scope));
  for (const auto& [name, argument] : node.named)
    arguments.named.emplace_back(name, evaluate(argument, scope));
  if (node.more_positional != nullptr) {
    for (auto& argument : iterate(evaluate(*node.more_positional, scope)))
      arguments.positional.push_back(std::move(argument));
  }
  if (node.more_named != nullptr) {
    const auto more = evaluate(*node.more_named, scope);
    const auto* mapping = more.as<Mapping>();
    if (mapping == nullptr) throw TemplateError("the argument behind ** must be a mapping");
    for (const auto& [name, argument] : *mapping->entries)
      arguments.named.emplace_back(to_text(name), argument);
  }
  return arguments;
}

}  // namespace diffuse::jinja
