// The Jinja interpreter: against what jinja2 printed (tests/data/text/jinja.json), and its bounds.

#include <gtest/gtest.h>

#include "support.hpp"
#include "text/chat_template.hpp"

namespace diffuse {
namespace {

std::string rendered(const std::string& source, const std::string& context = "{}",
                     const ChatOptions& options = {}) {
  return ChatTemplate(source, "test").render_raw(parse_ordered_json(context, "context"), options);
}

std::string bad(const std::string& source, const std::string& context = "{}",
                const ChatOptions& options = {}) {
  return error_of(ExitCode::bad_data, [&] { rendered(source, context, options); });
}

TEST(Jinja, PrintsWhatJinja2Prints) {
  const auto cases = parse_ordered_json(read_file(text_data("jinja.json"), 1U << 24), "jinja.json");
  ASSERT_GE(cases.size(), 100U);
  for (const auto& entry : cases) {
    const auto source = entry["template"].get<std::string>();
    const auto run = [&] { return ChatTemplate(source, "test").render_raw(entry["context"]); };
    if (entry.contains("error")) {
      EXPECT_THROW(run(), Error) << entry["name"];
      continue;
    }
    try {
      EXPECT_EQ(run(), entry["expected"].get<std::string>()) << entry["name"] << ": " << source;
    } catch (const Error& error) {
      ADD_FAILURE() << entry["name"] << ": " << error.what();
    }
  }
}

TEST(Jinja, GeneratorsAreReadOnceAndAlwaysTrue) {
  EXPECT_EQ(rendered("{% set g = [1, 2] | select %}{{ g | list }}{{ g | list }}"), "[1, 2][]");
  EXPECT_EQ(rendered("{% set g = [1, 2] | map('string') %}{{ g | first }}{{ g | list }}"), "1['2']");
  EXPECT_EQ(rendered("{{ 'y' if [] | select else 'n' }}{{ 'y' if [] | select | list else 'n' }}"), "yn");
}

TEST(Jinja, PrintsTheTimeItIsGiven) {
  ChatOptions options;
  options.now.tm_year = 126;
  options.now.tm_mon = 6;
  options.now.tm_mday = 4;
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}", "{}", options), "04 Jul 2026");
}

TEST(Jinja, RecursesWhereALoopSaysSo) {
  EXPECT_EQ(rendered("{% for x in t recursive %}{{ x.n }}{{ loop.depth }}({{ loop(x.c) }}){% endfor %}",
                     R"({"t": [{"n": "a", "c": [{"n": "b", "c": []}]}]})"),
            "a1(b2())");
}

TEST(Jinja, KeepsTheOrderOfKeys) {
  EXPECT_EQ(rendered("{{ d | tojson }}", R"({"d": {"z": 1, "a": {"y": 2, "b": 3}}})"),
            R"({"z": 1, "a": {"y": 2, "b": 3}})");
}

TEST(Jinja, NamesTheLineOfAnError) {
  EXPECT_NE(bad("a\n{% if %}").find("line 2"), std::string::npos);
  EXPECT_NE(bad("a\n\n{{ x.y }}").find("line 3: 'x' is undefined"), std::string::npos);
  EXPECT_NE(bad("{{ raise_exception('only user') }}").find("only user"), std::string::npos);
}

TEST(Jinja, RefusesWhatItDoesNotHaveByName) {
  for (const auto& [source, name] :
       std::vector<std::pair<std::string, std::string>>{{"{{ 'a' | urlize }}", "urlize"},
                                                        {"{{ 1 is strange }}", "strange"},
                                                        {"{% include 'x' %}", "include"},
                                                        {"{% do x %}", "do"},
                                                        {"{{ cycler(1) }}", "cycler"},
                                                        {"{{ '{:>5}'.format(1) }}", ":>5"}}) {
    EXPECT_NE(error_of(ExitCode::refused, [&, s = source] { rendered(s); }).find(name), std::string::npos)
        << source;
  }
  EXPECT_EQ(rendered("{% if false %}{{ 1 | urlize }}{% endif %}ok"), "ok");
}

TEST(Jinja, SyntaxErrorsAreOneLine) {
  for (const auto* source : {"{{",
                             "{% if x %}",
                             "{{ 1 + }}",
                             "{{ (1 }}",
                             "{{ 'a }}",
                             "{% for x %}{% endfor %}",
                             "{% endif %}",
                             "{# x",
                             "{% raw %}x",
                             "{% set 1 = 2 %}",
                             "{{ a b }}",
                             "{{ [1, }}",
                             "{{ {1 2} }}",
                             "{% break %}",
                             "{{ ] }}",
                             "{% for a in b %}{% else %}{% else %}{% endfor %}",
                             "{% macro m(a=1, b) %}{% endmacro %}",
                             "{{ x is }}",
                             "{{ 99999999999999999999999999999999999999999 }}",
                             "{{ '\\ud800' }}",
                             "{{ 007 }}",
                             "{{ ` }}",
                             "{% nosuch %}",
                             "{% set true = 1 %}",
                             "{% call 1 %}{% endcall %}"})
    bad(source);
}

TEST(Jinja, RunsNothingForever) {
  ChatOptions options;
  options.limits.steps = 100'000;
  bad("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{}", options);
  bad("{% for i in range(1000000) %}x{% endfor %}");
  bad("{{ [0] * 1000000000000 }}");
  bad("{% set ns = namespace(l=[1, 1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}");
  bad("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  bad("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
}

TEST(Jinja, MakesNoEndlessText) {
  bad("{{ 'x' * 100000000000 }}");
  bad("{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
      "%}");
  bad("{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('x', "
      "'xx') %}{% endfor %}");
  bad("{{ 'x' | center(100000000000) }}");
  bad("{{ '%2000d' | format(1) }}");
  bad("{{ 'a' | indent(100000000000, true) }}");
}

TEST(Jinja, NestsOnlySoDeep) {
  bad("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}");
  bad("{{ " + std::string(5000, '-') + "1 }}");
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  bad(sum + " }}");
  bad("{% if false %}" + sum + " }}{% endif %}");
  std::string ifs;
  for (int i = 0; i < 1000; ++i) ifs += "{% if 1 %}";
  bad(ifs);
  bad("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
      "}}");
  bad("{% set ns = namespace(n=1) %}{% for i in range(5000) %}{% set ns.n = namespace(p=ns.n) %}{% endfor "
      "%}");
  bad("{% set ns = namespace(n=1) %}{% for i in range(5000) %}{% set ns.n = {'p': ns.n}.get %}{% endfor %}");
}

TEST(Jinja, FreesWhatHoldsItself) {
  EXPECT_EQ(
      rendered("{% set ns = namespace() %}{% macro m() %}x{% endmacro %}{% set ns.m = m %}{{ ns.m() }}"),
      "x");
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.me = ns %}ok"), "ok");
}

}  // namespace
}  // namespace diffuse
