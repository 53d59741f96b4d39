#pragma once
// A parsed template. Plain values that own their parts; the interpreter visits them.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.hpp"

namespace diffuse::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  ExpressionPtr more_positional;  // *x
  ExpressionPtr more_named;       // **x
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct Items {  // [a, b] or (a, b)
  Sequence::Kind kind;
  std::vector<Expression> items;
};
struct Pairs {  // {a: b}
  std::vector<std::pair<Expression, Expression>> pairs;
};
struct Negate {
  ExpressionPtr operand;
};
struct Positive {
  ExpressionPtr operand;
};
struct Not {
  ExpressionPtr operand;
};
struct Logic {
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};
enum class Operator { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Arithmetic {
  Operator op;
  ExpressionPtr left;
  ExpressionPtr right;
};
enum class Comparison { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
struct Compare {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<Comparison, Expression>> rest;
};
struct Concat {
  std::vector<Expression> items;
};
struct Conditional {
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // may be null
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {
  ExpressionPtr object;
  ExpressionPtr start;  // each may be null
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr operand;  // null: what the block around it made
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr operand;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  std::variant<Literal, Name, Items, Pairs, Negate, Positive, Not, Logic, Arithmetic, Compare, Concat,
               Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      kind;
};

// What is assigned to: a name, a namespace's attribute, or several.
struct Target {
  std::string name;
  std::string attribute;      // of the namespace `name`; else empty
  std::vector<Target> parts;  // of a tuple; else empty
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameters {
  std::vector<std::string> names;
  std::vector<Expression> defaults;  // of the last names
};
struct MacroBody {
  std::string name;
  Parameters parameters;
  Block body;
  bool reads_varargs = false;
  bool reads_kwargs = false;
  bool reads_caller = false;
};

struct Data {
  std::string text;
};
struct Output {
  Expression value;
};
struct For {
  Target target;
  Expression iterable;
  std::optional<Expression> condition;
  bool recursive;
  Block body;
  Block otherwise;
};
struct If {
  std::vector<std::pair<Expression, Block>> branches;
  Block otherwise;
};
struct Set {
  Target target;
  Expression value;
};
struct SetBlock {
  Target target;
  std::optional<Expression> filter;
  Block body;
};
struct With {
  std::vector<std::pair<Target, Expression>> values;
  Block body;
};
struct Macro {
  MacroBody macro;
};
struct CallBlock {
  Expression call;  // holds a Call
  MacroBody caller;
};
struct FilterBlock {
  Expression filter;
  Block body;
};
struct Scoped {  // a block of its own scope that changes nothing else: {% generation %}
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Output, For, If, Set, SetBlock, With, Macro, CallBlock, FilterBlock, Scoped, Break,
               Continue>
      kind;
  int line;
};

}  // namespace diffuse::jinja
