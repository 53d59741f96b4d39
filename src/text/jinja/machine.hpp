#pragma once
// Runs a parsed template. One object a rendering; every step, every piece of text made and every level of
// nesting is counted against limits.

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/value.hpp"

namespace diffuse::jinja {

struct Limits {
  std::uint64_t steps;
  std::uint64_t text_bytes;
  int depth;
};

class Machine {
 public:
  Machine(Limits limits, const std::tm& now) : limits_(limits), now_(now) {}
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Renders with these names in sight. Throws TemplateError.
  std::string render(const Block& block, const Entries& variables);

  // For filters, tests, methods and functions.
  void step(std::uint64_t count = 1);     // counts work; throws at the limit
  void expect_text(std::uint64_t bytes);  // counts text before it is made
  Value text(std::string made, bool markup = false);
  Value call(const Value& callee, const Arguments& arguments);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  // What a for loop goes through. Throws where Python cannot iterate.
  Values iterate(const Value& value);
  Value filter(const std::string& name, const Value& operand, const Arguments& arguments);
  bool test(const std::string& name, const Value& operand, const Arguments& arguments);
  const std::tm& now() const { return now_; }
  void track(const std::shared_ptr<Space::Content>& space) { spaces_.push_back(space); }

 private:
  enum class Flow { next, leave, again };  // leave and again: of the loop around
  struct Scope {
    std::vector<std::pair<std::string, Value>> variables;
    std::shared_ptr<Scope> parent;
    Value* find(std::string_view name);
    void set(const std::string& name, Value value);
  };
  using ScopePtr = std::shared_ptr<Scope>;
  class Deeper;

  static ScopePtr inner(const ScopePtr& scope);
  void write(std::string_view text);
  // What running the block adds to the text.
  std::string capture(const Block& block, const ScopePtr& scope);

  Flow run(const Block& block, const ScopePtr& scope);
  Flow run(const Data& node, const ScopePtr& scope);
  Flow run(const Output& node, const ScopePtr& scope);
  Flow run(const For& node, const ScopePtr& scope);
  Flow run(const If& node, const ScopePtr& scope);
  Flow run(const Set& node, const ScopePtr& scope);
  Flow run(const SetBlock& node, const ScopePtr& scope);
  Flow run(const With& node, const ScopePtr& scope);
  Flow run(const Macro& node, const ScopePtr& scope);
  Flow run(const CallBlock& node, const ScopePtr& scope);
  Flow run(const FilterBlock& node, const ScopePtr& scope);
  Flow run(const Scoped& node, const ScopePtr& scope);
  Flow run(const Break&, const ScopePtr&) { return Flow::leave; }
  Flow run(const Continue&, const ScopePtr&) { return Flow::again; }
  void run_loop(const For& node, const Value& iterable, const ScopePtr& scope, std::size_t depth);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  Value make_macro(const MacroBody& macro, const ScopePtr& scope);
  Value call_macro(const MacroBody& macro, const ScopePtr& scope, const Arguments& arguments);

  Value evaluate(const Expression& node, const ScopePtr& scope);
  Value evaluate(const Literal& node, const ScopePtr& scope);
  Value evaluate(const Name& node, const ScopePtr& scope);
  Value evaluate(const Items& node, const ScopePtr& scope);
  Value evaluate(const Pairs& node, const ScopePtr& scope);
  Value evaluate(const Negate& node, const ScopePtr& scope);
  Value evaluate(const Positive& node, const ScopePtr& scope);
  Value evaluate(const Not& node, const ScopePtr& scope);
  Value evaluate(const Logic& node, const ScopePtr& scope);
  Value evaluate(const Arithmetic& node, const ScopePtr& scope);
  Value evaluate(const Compare& node, const ScopePtr& scope);
  Value evaluate(const Concat& node, const ScopePtr& scope);
  Value evaluate(const Conditional& node, const ScopePtr& scope);
  Value evaluate(const Attribute& node, const ScopePtr& scope);
  Value evaluate(const Subscript& node, const ScopePtr& scope);
  Value evaluate(const Slice& node, const ScopePtr& scope);
  Value evaluate(const Call& node, const ScopePtr& scope);
  Value evaluate(const Filter& node, const ScopePtr& scope);
  Value evaluate(const Test& node, const ScopePtr& scope);
  Value apply_filter(const Filter& node, const Value* block_text, const ScopePtr& scope);
  Arguments evaluate(const CallArguments& node, const ScopePtr& scope);

  Limits limits_;
  std::tm now_;
  std::uint64_t steps_ = 0;
  std::uint64_t text_bytes_ = 0;
  int depth_ = 0;
  int line_ = 0;
  std::string out_;
  // Macros and namespaces can hold what holds them; these are emptied at the end.
  std::vector<ScopePtr> macro_scopes_;
  std::vector<std::shared_ptr<Space::Content>> spaces_;
};

// Names that every template sees: range, dict, namespace, raise_exception, strftime_now.
const Value* find_global(std::string_view name);

}  // namespace diffuse::jinja
