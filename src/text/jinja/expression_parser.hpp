#pragma once
// The part of the parser that reads expressions; parser.cpp reads the statements around them.

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

namespace diffuse::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Bounds how deep the parser calls itself, and with it how deep what it makes is nested.
  class Nest {
   public:
    explicit Nest(ExpressionParser& parser);
    ~Nest() { --parser_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void skip() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool is_symbol(std::string_view text) const {
    return current().kind == Token::Kind::symbol && current().text == text;
  }
  bool is_name(std::string_view text) const {
    return current().kind == Token::Kind::name && current().text == text;
  }
  bool skip_symbol(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_symbol(std::string_view text);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& why, bool unknown = false) const;
  std::string seen() const;  // the current token, for an error

  Expression parse_expression(bool with_condition = true);
  // An expression, or a tuple where commas follow. `end` is a name that ends it ("recursive").
  Expression parse_tuple(bool with_condition = true, std::string_view end = {}, bool in_parentheses = false);
  Target parse_target(std::string_view end = {});
  Parameters parse_parameters();
  Expression parse_filters(Expression operand);
  // `name` is the filter's, already read; its operand is null where there is none yet.
  Expression parse_filter(ExpressionPtr operand, bool is_first);

  struct Reads {
    bool varargs = false;
    bool kwargs = false;
    bool caller = false;
  };
  std::vector<Reads> macros_;  // around what is being read
  int depth_ = 0;

 private:
  Expression parse_or();
  Expression parse_and();
  Expression parse_not();
  Expression parse_compare();
  Expression parse_sum();
  Expression parse_concat();
  Expression parse_product();
  Expression parse_power();
  Expression parse_unary(bool with_filters = true);
  Expression parse_primary();
  Expression parse_list();
  Expression parse_dict();
  Expression parse_postfix(Expression node);
  Expression parse_subscript(Expression node);
  Expression parse_test(Expression operand);
  CallArguments parse_arguments();
  Target parse_one_target();
  void note_name(const std::string& name);
  bool at_tuple_end(std::string_view end) const;
  // Counts a left-leaning chain as nesting, for it is walked as such.
  void lengthen(int& length) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace diffuse::jinja
