#include "text/jinja/expression_parser.hpp"

#include <array>
#include <utility>

namespace diffuse::jinja {
namespace {

constexpr int kMaxDepth = 150;
constexpr int kMaxChain = 400;

ExpressionPtr own(Expression expression) {
  return std::make_unique<Expression>(std::move(expression));
}

template <typename Kind>
Expression make(Kind kind) {
  return Expression{std::move(kind)};
}

}  // namespace

ExpressionParser::Nest::Nest(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= kMaxDepth) parser.fail("the template nests deeper than " + std::to_string(kMaxDepth));
  ++parser.depth_;
}

void ExpressionParser::lengthen(int& length) const {
  if (++length > kMaxChain) fail("an expression of more than " + std::to_string(kMaxChain) + " parts");
}

void ExpressionParser::fail(const std::string& why, bool unknown) const {
  throw TemplateError("line " + std::to_string(current().line) + ": " + why, unknown);
}

std::string ExpressionParser::seen() const {
  switch (current().kind) {
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::variable_end:
    case Token::Kind::block_end:
      return "the end of the tag";
    case Token::Kind::string:
      return "a string";
    case Token::Kind::number:
      return "a number";
    default:
      return "'" + current().text.substr(0, 40) + "'";
  }
}

bool ExpressionParser::skip_symbol(std::string_view text) {
  if (!is_symbol(text)) return false;
  skip();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  skip();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) fail("expected '" + std::string(text) + "', found " + seen());
}

std::string ExpressionParser::expect_name() {
  if (current().kind != Token::Kind::name) fail("expected a name, found " + seen());
  auto name = current().text;
  skip();
  return name;
}

void ExpressionParser::note_name(const std::string& name) {
  for (auto& reads : macros_) {
    reads.varargs = reads.varargs || name == "varargs";
    reads.kwargs = reads.kwargs || name == "kwargs";
    reads.caller = reads.caller || name == "caller";
  }
}

Expression ExpressionParser::parse_expression(bool with_condition) {
  const Nest nest(*this);
  auto value = parse_or();
  int length = 0;
  while (with_condition && skip_name("if")) {
    lengthen(length);
    auto test = parse_or();
    ExpressionPtr otherwise;
    if (skip_name("else")) otherwise = own(parse_expression());
    value = make(Conditional{own(std::move(test)), own(std::move(value)), std::move(otherwise)});
  }
  return value;
}

Expression ExpressionParser::parse_or() {
  auto left = parse_and();
  int length = 0;
  while (skip_name("or")) {
    lengthen(length);
    left = make(Logic{false, own(std::move(left)), own(parse_and())});
  }
  return left;
}

Expression ExpressionParser::parse_and() {
  auto left = parse_not();
  int length = 0;
  while (skip_name("and")) {
    lengthen(length);
    left = make(Logic{true, own(std::move(left)), own(parse_not())});
  }
  return left;
}

Expression ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nest nest(*this);
  skip();
  return make(Not{own(parse_not())});
}

Expression ExpressionParser::parse_compare() {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kComparisons = {
      {{"==", Comparison::equal},
       {"!=", Comparison::unequal},
       {"<", Comparison::less},
       {"<=", Comparison::less_equal},
       {">", Comparison::greater},
       {">=", Comparison::greater_equal}}};
  auto first = parse_sum();
  std::vector<std::pair<Comparison, Expression>> rest;
  while (true) {
    bool found = false;
    for (const auto& [symbol, comparison] : kComparisons) {
      if (!skip_symbol(symbol)) continue;
      rest.emplace_back(comparison, parse_sum());
      found = true;
      break;
    }
    if (found) continue;
    if (skip_name("in")) {
      rest.emplace_back(Comparison::in, parse_sum());
    } else if (is_name("not") && following().kind == Token::Kind::name && following().text == "in") {
      skip();
      skip();
      rest.emplace_back(Comparison::not_in, parse_sum());
    } else {
      break;
    }
  }
  if (rest.empty()) return first;
  return make(Compare{own(std::move(first)), std::move(rest)});
}

Expression ExpressionParser::parse_sum() {
  auto left = parse_concat();
  int length = 0;
  while (is_symbol("+") || is_symbol("-")) {
    lengthen(length);
    const auto op = is_symbol("+") ? Operator::add : Operator::subtract;
    skip();
    left = make(Arithmetic{op, own(std::move(left)), own(parse_concat())});
  }
  return left;
}

Expression ExpressionParser::parse_concat() {
  auto first = parse_product();
  if (!is_symbol("~")) return first;
  std::vector<Expression> items;
  items.push_back(std::move(first));
  while (skip_symbol("~")) items.push_back(parse_product());
  return make(Concat{std::move(items)});
}

Expression ExpressionParser::parse_product() {
  constexpr std::array<std::pair<std::string_view, Operator>, 4> kOperators = {
      {{"*", Operator::multiply},
       {"/", Operator::divide},
       {"//", Operator::floor_divide},
       {"%", Operator::modulo}}};
  auto left = parse_power();
  int length = 0;
  for (bool found = true; found;) {
    found = false;
    for (const auto& [symbol, op] : kOperators) {
      if (!skip_symbol(symbol)) continue;
      lengthen(length);
      left = make(Arithmetic{op, own(std::move(left)), own(parse_power())});
      found = true;
      break;
    }
  }
  return left;
}

Expression ExpressionParser::parse_power() {
  auto left = parse_unary();
  int length = 0;
  while (skip_symbol("**")) {
    lengthen(length);
    left = make(Arithmetic{Operator::power, own(std::move(left)), own(parse_unary())});
  }
  return left;
}

Expression ExpressionParser::parse_unary(bool with_filters) {
  const Nest nest(*this);
  Expression node;
  if (skip_symbol("-")) {
    node = make(Negate{own(parse_unary(false))});
  } else if (skip_symbol("+")) {
    node = make(Positive{own(parse_unary(false))});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

Expression ExpressionParser::parse_primary() {
  const auto token = current();
  switch (token.kind) {
    case Token::Kind::name:
      skip();
      if (token.text == "true" || token.text == "True") return make(Literal{Value(true)});
      if (token.text == "false" || token.text == "False") return make(Literal{Value(false)});
      if (token.text == "none" || token.text == "None") return make(Literal{Value()});
      note_name(token.text);
      return make(Name{token.text});
    case Token::Kind::string: {
      std::string text;
      for (; current().kind == Token::Kind::string; skip()) text += current().text;
      return make(Literal{make_text(std::move(text))});
    }
    case Token::Kind::number:
      skip();
      return make(Literal{token.number});
    case Token::Kind::symbol:
      if (skip_symbol("(")) {
        auto inner = parse_tuple(true, {}, true);
        expect_symbol(")");
        return inner;
      }
      if (is_symbol("[")) return parse_list();
      if (is_symbol("{")) return parse_dict();
      break;
    default:
      break;
  }
  fail("expected an expression, found " + seen());
}

Expression ExpressionParser::parse_list() {
  skip();
  std::vector<Expression> items;
  while (!is_symbol("]")) {
    if (!items.empty()) expect_symbol(",");
    if (is_symbol("]")) break;
    items.push_back(parse_expression());
  }
  skip();
  return make(Items{Sequence::Kind::list, std::move(items)});
}

Expression ExpressionParser::parse_dict() {
  skip();
  std::vector<std::pair<Expression, Expression>> pairs;
  while (!is_symbol("}")) {
    if (!pairs.empty()) expect_symbol(",");
    if (is_symbol("}")) break;
    auto key = parse_expression();
    expect_symbol(":");
    pairs.emplace_back(std::move(key), parse_expression());
  }
  skip();
  return make(Pairs{std::move(pairs)});
}

bool ExpressionParser::at_tuple_end(std::string_view end) const {
  const auto kind = current().kind;
  return kind == Token::Kind::variable_end || kind == Token::Kind::block_end || kind == Token::Kind::end ||
         is_symbol(")") || (!end.empty() && is_name(end));
}

Expression ExpressionParser::parse_tuple(bool with_condition, std::string_view end, bool in_parentheses) {
  std::vector<Expression> items;
  bool is_tuple = false;
  while (!at_tuple_end(end)) {
    items.push_back(parse_expression(with_condition));
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_parentheses) fail("expected an expression, found " + seen());
  return make(Items{Sequence::Kind::tuple, std::move(items)});
}

Expression ExpressionParser::parse_postfix(Expression node) {
  int length = 0;
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_symbol("(")) {
      node = make(Call{own(std::move(node)), parse_arguments()});
    } else {
      return node;
    }
    lengthen(length);
  }
}

Expression ExpressionParser::parse_subscript(Expression node) {
  if (skip_symbol(".")) {
    if (current().kind == Token::Kind::number && current().number.is<Int>()) {
      auto index = make(Literal{current().number});
      skip();
      return make(Subscript{own(std::move(node)), own(std::move(index))});
    }
    return make(Attribute{own(std::move(node)), expect_name()});
  }
  expect_symbol("[");
  ExpressionPtr parts[3];
  bool is_slice = false;
  if (!is_symbol(":")) parts[0] = own(parse_expression());
  for (int part = 1; part < 3 && skip_symbol(":"); ++part) {
    is_slice = true;
    if (!is_symbol(":") && !is_symbol("]")) parts[part] = own(parse_expression());
  }
  if (is_symbol(",")) fail("a subscript of several parts is not known", true);
  expect_symbol("]");
  if (!is_slice) return make(Subscript{own(std::move(node)), std::move(parts[0])});
  return make(Slice{own(std::move(node)), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
}

Expression ExpressionParser::parse_filters(Expression operand) {
  int length = 0;
  while (true) {
    if (is_symbol("|")) {
      operand = parse_filter(own(std::move(operand)), false);
    } else if (is_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (is_symbol("(")) {
      operand = make(Call{own(std::move(operand)), parse_arguments()});
    } else {
      return operand;
    }
    lengthen(length);
  }
}

Expression ExpressionParser::parse_filter(ExpressionPtr operand, bool is_first) {
  if (!is_first) expect_symbol("|");
  auto name = expect_name();
  CallArguments arguments;
  if (is_symbol("(")) arguments = parse_arguments();
  return make(Filter{std::move(operand), std::move(name), std::move(arguments)});
}

Expression ExpressionParser::parse_test(Expression operand) {
  skip();
  const bool negated = skip_name("not");
  auto name = expect_name();
  CallArguments arguments;
  const auto kind = current().kind;
  const bool value_follows = kind == Token::Kind::name || kind == Token::Kind::string ||
                             kind == Token::Kind::number || is_symbol("[") || is_symbol("{");
  if (is_symbol("(")) {
    arguments = parse_arguments();
  } else if (value_follows && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("a test behind a test");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  auto test = make(Test{own(std::move(operand)), std::move(name), std::move(arguments)});
  return negated ? make(Not{own(std::move(test))}) : std::move(test);
}

CallArguments ExpressionParser::parse_arguments() {
  expect_symbol("(");
  CallArguments arguments;
  for (bool first = true; !is_symbol(")"); first = false) {
    if (!first) {
      expect_symbol(",");
      if (is_symbol(")")) break;
    }
    if (arguments.more_named) fail("arguments behind **");
    if (skip_symbol("*")) {
      if (arguments.more_positional) fail("two * in a call");
      arguments.more_positional = own(parse_expression());
    } else if (skip_symbol("**")) {
      arguments.more_named = own(parse_expression());
    } else if (current().kind == Token::Kind::name && following().kind == Token::Kind::symbol &&
               following().text == "=") {
      auto name = expect_name();
      skip();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (arguments.more_positional || !arguments.named.empty()) fail("a plain argument behind named ones");
      arguments.positional.push_back(parse_expression());
    }
  }
  skip();
  return arguments;
}

Target ExpressionParser::parse_one_target() {
  const Nest nest(*this);
  Target target;
  if (skip_symbol("(")) {
    target = parse_target();
    expect_symbol(")");
    return target;
  }
  target.name = expect_name();
  for (const auto* constant : {"true", "false", "none", "True", "False", "None"})
    if (target.name == constant) fail("'" + target.name + "' cannot be assigned to");
  if (skip_symbol(".")) target.attribute = expect_name();
  return target;
}

Target ExpressionParser::parse_target(std::string_view end) {
  auto first = parse_one_target();
  if (!is_symbol(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (at_tuple_end(end) || is_symbol("=")) break;
    tuple.parts.push_back(parse_one_target());
  }
  return tuple;
}

Parameters ExpressionParser::parse_parameters() {
  Parameters parameters;
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (!parameters.names.empty()) expect_symbol(",");
    parameters.names.push_back(expect_name());
    if (skip_symbol("=")) {
      parameters.defaults.push_back(parse_expression());
    } else if (!parameters.defaults.empty()) {
      fail("a parameter without a default behind one with");
    }
  }
  skip();
  return parameters;
}

}  // namespace diffuse::jinja
