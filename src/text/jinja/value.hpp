#pragma once
// What a template computes with: Python's values, as far as templates see them. Immutable but for namespaces.
//
// Values are cheap to copy (they share what they hold). Nesting is bounded (kMaxNesting), so that walking and
// freeing them cannot exhaust the stack.

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace diffuse::jinja {

// Wide enough for what templates print; beyond it arithmetic is refused.
using Int = __int128;

inline constexpr int kMaxNesting = 200;

// A template that cannot be parsed or run. `unknown` says that it may be right, but uses what is not there.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& message, bool unknown = false)
      : std::runtime_error(message), unknown_(unknown) {}
  bool unknown() const { return unknown_; }

 private:
  bool unknown_;
};

class Machine;
struct Value;
struct Arguments;
struct Callable;
struct LoopState;
using Values = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

struct Undefined {
  std::shared_ptr<const std::string> why;  // what an error says when it is used
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> text;
  bool markup = false;  // of |safe and |escape: adding another string to it escapes that one
};
struct Sequence {
  enum class Kind { list, tuple, generator, group };  // a group is groupby's pair, with names
  Kind kind;
  std::shared_ptr<const Values> items;
  int nesting;
  std::shared_ptr<std::size_t> taken;  // of a generator: how many items were read; they come only once
};
struct Mapping {
  std::shared_ptr<const Entries> entries;
  int nesting;
};
struct Space {  // namespace()
  struct Content {
    Entries entries;
    int nesting = 1;
  };
  std::shared_ptr<Content> content;
};
struct Loop {
  std::shared_ptr<LoopState> state;
};
struct Function {
  std::shared_ptr<const Callable> callable;
};

struct Value {
  std::variant<Undefined, None, bool, Int, double, Text, Sequence, Mapping, Space, Loop, Function> data;

  Value() : data(None{}) {}
  explicit Value(bool flag) : data(flag) {}
  explicit Value(Int number) : data(number) {}
  explicit Value(double number) : data(number) {}
  template <typename Kind>
  requires(std::is_class_v<Kind> && !std::is_same_v<Kind, Value>) explicit Value(Kind kind)
      : data(std::move(kind)) {}

  template <typename Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&data);
  }
  template <typename Kind>
  bool is() const {
    return std::holds_alternative<Kind>(data);
  }
};

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Machine&, const Arguments&)> call;
  int nesting = 1;
};

struct LoopState {
  Values items;
  std::size_t index = 0;
  std::size_t depth = 1;
  std::shared_ptr<const Values> last_changed;
  std::function<Value(Machine&, const Value&)> recurse;  // of a loop marked recursive
};

Value make_undefined(std::string why);
Value make_text(std::string text, bool markup = false);
// Throw where the result nests too deep.
Value make_sequence(Values items, Sequence::Kind kind = Sequence::Kind::list);
Value make_mapping(Entries entries);
Value make_function(std::string name, std::function<Value(Machine&, const Arguments&)> call, int nesting = 1);
int nesting_of(const Value& value);
void check_nesting(int nesting);

const Value* find_entry(const Entries& entries, const Value& key);

// Python's words for a value.
std::string_view type_name(const Value& value);
bool is_true(const Value& value);
std::string to_text(const Value& value);  // str()
std::string to_repr(const Value& value);  // repr()
std::string float_repr(double number);
std::string int_text(Int number);
bool equal(const Value& a, const Value& b);
bool same_object(const Value& a, const Value& b);  // `is`
// a < b; throws where Python has no order for the two.
bool less(const Value& a, const Value& b);

}  // namespace diffuse::jinja
