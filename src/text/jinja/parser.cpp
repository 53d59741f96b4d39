#include "text/jinja/parser.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/expression_parser.hpp"
#include "text/jinja/lexer.hpp"

namespace diffuse::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Block run() {
    auto block = parse_block({});
    if (current().kind != Token::Kind::end) fail("unexpected " + seen());
    return block;
  }

 private:
  // Reads statements up to a tag with one of the names, which stays current; up to the end where there are
  // none.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Nest nest(*this);
    Block block;
    while (current().kind != Token::Kind::end) {
      const int line = current().line;
      if (current().kind == Token::Kind::data) {
        block.push_back({Data{current().text}, line});
        skip();
      } else if (current().kind == Token::Kind::variable_begin) {
        skip();
        block.push_back({Output{parse_tuple()}, line});
        expect(Token::Kind::variable_end);
      } else {
        expect(Token::Kind::block_begin);
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_name(end); })) return block;
        if (auto statement = parse_statement()) block.push_back({std::move(*statement), line});
      }
    }
    if (ends.size() > 0) fail("the template ends where '" + std::string(*(ends.end() - 1)) + "' is missing");
    return block;
  }

  void expect(Token::Kind kind) {
    if (current().kind != kind) fail("unexpected " + seen());
    skip();
  }
  void end_tag() { expect(Token::Kind::block_end); }

  // The statements up to {% end... %}, whose tag is read as well.
  Block parse_body(std::string_view end) {
    end_tag();
    auto body = parse_block({end});
    skip();
    end_tag();
    return body;
  }

  std::optional<decltype(Statement::kind)> parse_statement() {
    const auto name = expect_name();
    if (name == "for") return parse_for();
    if (name == "if") return parse_if();
    if (name == "set") return parse_set();
    if (name == "with") return parse_with();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call();
    if (name == "filter") return parse_filter_block();
    if (name == "generation") return Scoped{parse_body("endgeneration")};
    if (name == "print") {
      auto value = parse_tuple();
      end_tag();
      return Output{std::move(value)};
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("'" + name + "' outside a loop");
      end_tag();
      if (name == "break") return Break{};
      return Continue{};
    }
    for (const auto* known :
         {"block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"})
      if (name == known) fail("the tag '" + name + "' is not known", true);
    fail("unexpected tag '" + name.substr(0, 40) + "'");
  }

  For parse_for() {
    auto target = parse_target("in");
    if (!skip_name("in")) fail("expected 'in', found " + seen());
    auto iterable = parse_tuple(false, "recursive");
    std::optional<Expression> condition;
    if (skip_name("if")) condition = parse_expression();
    const bool recursive = skip_name("recursive");
    end_tag();
    ++loops_;
    auto body = parse_block({"else", "endfor"});
    --loops_;
    Block otherwise;
    if (skip_name("else")) {
      otherwise = parse_body("endfor");
    } else {
      skip();
      end_tag();
    }
    return {std::move(target), std::move(iterable), std::move(condition),
            recursive,         std::move(body),     std::move(otherwise)};
  }

  If parse_if() {
    If node;
    while (true) {
      auto test = parse_tuple(false);
      end_tag();
      auto body = parse_block({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(test), std::move(body));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        node.otherwise = parse_body("endif");
      } else {
        skip();
        end_tag();
      }
      return node;
    }
  }

  std::optional<decltype(Statement::kind)> parse_set() {
    auto target = parse_target();
    if (skip_symbol("=")) {
      auto value = parse_tuple();
      end_tag();
      return Set{std::move(target), std::move(value)};
    }
    std::optional<Expression> filter;
    while (is_symbol("|")) {
      auto operand = filter ? std::make_unique<Expression>(std::move(*filter)) : nullptr;
      filter = parse_filter(std::move(operand), false);
    }
    return SetBlock{std::move(target), std::move(filter), parse_body("endset")};
  }

  With parse_with() {
    With node;
    while (current().kind != Token::Kind::block_end) {
      if (!node.values.empty()) expect_symbol(",");
      auto target = parse_target();
      expect_symbol("=");
      node.values.emplace_back(std::move(target), parse_expression());
    }
    node.body = parse_body("endwith");
    return node;
  }

  // Parameters and body, with the names that the body reads.
  MacroBody parse_macro_body(std::string name, Parameters parameters, std::string_view end) {
    macros_.emplace_back();
    const auto loops = std::exchange(loops_, 0);
    auto body = parse_body(end);
    loops_ = loops;
    const auto reads = macros_.back();
    macros_.pop_back();
    return {std::move(name), std::move(parameters), std::move(body),
            reads.varargs,   reads.kwargs,          reads.caller};
  }

  Macro parse_macro() {
    auto name = expect_name();
    auto parameters = parse_parameters();
    return {parse_macro_body(std::move(name), std::move(parameters), "endmacro")};
  }

  CallBlock parse_call() {
    Parameters parameters;
    if (is_symbol("(")) parameters = parse_parameters();
    auto call = parse_expression();
    if (!std::holds_alternative<Call>(call.kind)) fail("a call block without a call");
    return {std::move(call), parse_macro_body("caller", std::move(parameters), "endcall")};
  }

  FilterBlock parse_filter_block() {
    auto filter = parse_filter(nullptr, true);
    while (is_symbol("|")) filter = parse_filter(std::make_unique<Expression>(std::move(filter)), false);
    return {std::move(filter), parse_body("endfilter")};
  }

  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace diffuse::jinja
