#include "text/chat_template.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "support.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {
namespace {

OrderedJson json(const std::string& text) {
  return parse_ordered_json(text, "test");
}

ChatOptions without_prompt() {
  ChatOptions options;
  options.add_generation_prompt = false;
  return options;
}

constexpr const char* kTextTemplate = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr const char* kPartsTemplate =
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% "
    "elif p.type == 'image' %}[IMG]{% endif %}{% endfor %}{% endfor %}";

class ChatFixture : public testing::TestWithParam<std::string> {};

TEST_P(ChatFixture, RendersWhatTransformersRenders) {
  const auto folder = text_data(GetParam());
  const auto tokenizer = Tokenizer::load(folder);
  const auto chat = ChatTemplate::find(folder);
  ASSERT_TRUE(chat);
  const auto cases = json(read_file(text_data("chat-" + GetParam() + ".json"), 1U << 24));
  ASSERT_GE(cases.size(), 30U);
  for (const auto& entry : cases) {
    ChatOptions options;
    options.special_tokens = tokenizer.special_tokens();
    options.add_generation_prompt = entry["add_generation_prompt"].get<bool>();
    if (entry.contains("tools")) options.tools = entry["tools"];
    const auto text = chat->render(entry["messages"], options);
    EXPECT_EQ(text, entry["text"].get<std::string>());
    EXPECT_EQ(tokenizer.encode(text, false), entry["ids"].get<std::vector<std::int32_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChatFixture, testing::Values("qwen", "smollm2", "demo"));

TEST(Content, PartsAreJoinedForATemplateThatWantsText) {
  const ChatTemplate chat(kTextTemplate, "test");
  const auto messages = json(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(chat.render(messages, without_prompt()), "<user>a\nb");
}

TEST(Content, AStringIsNoEmptyTurnInATemplateThatWantsParts) {
  const ChatTemplate chat(kPartsTemplate, "test");
  EXPECT_EQ(chat.render(json(R"([{"role": "user", "content": "hello"}])"), without_prompt()), "<user>hello");
  EXPECT_EQ(
      chat.render(
          json(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}])"),
          without_prompt()),
      "<user>[IMG]what?");
}

TEST(Content, APictureIsRefusedByATemplateOfText) {
  const ChatTemplate chat(kTextTemplate, "test");
  const auto messages =
      json(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "b"}]}])");
  const auto message = error_of(ExitCode::bad_data, [&] { chat.render(messages, without_prompt()); });
  EXPECT_NE(message.find("no place"), std::string::npos);
}

TEST(Content, ATemplateThatTakesBothGetsWhatIsThere) {
  const ChatTemplate chat(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "
      "%}({{ p.text }}){% endfor %}{% endif %}{% endfor %}",
      "test");
  EXPECT_EQ(
      chat.render(
          json(
              R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}])"),
          without_prompt()),
      "a(b)");
}

TEST(Messages, NullsAreNotThereAndReasoningHasItsNames) {
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.content is defined }}{{ m.reasoning_content }}{{ m.thinking }}{% endfor "
      "%}",
      "test");
  EXPECT_EQ(chat.render(json(R"([{"role": "user", "content": null, "reasoning": "r"}])"), without_prompt()),
            "Falserr");
}

TEST(Messages, OfAnotherShapeAreRefused) {
  const ChatTemplate chat(kTextTemplate, "test");
  for (const auto* text :
       {"[]", "{}", "3", "[3]", "[{}]", R"([{"role": 1, "content": "x"}])", R"([{"content": "x"}])"})
    error_of(ExitCode::bad_data, [&] { chat.render(json(text), without_prompt()); });
  error_of(ExitCode::bad_data, [] { json("[1"); });
  error_of(ExitCode::bad_data, [] { json(std::string(100, '[')); });
}

TEST(Templates, SeeSpecialTokensToolsAndVariables) {
  const ChatTemplate chat(
      "{{ bos_token }}{{ tools is none }}{{ thinking }}{{ pad_token is defined }}{{ messages | length }}{{ "
      "add_generation_prompt }}",
      "test");
  ChatOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  options.variables["thinking"] = false;
  EXPECT_EQ(chat.render(json(R"([{"role": "user", "content": "x"}])"), options), "<s>TrueFalseFalse1True");
}

TEST(Templates, AreFoundWhereFoldersKeepThem) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "diffuse_chat_template_test";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "chat_template.jinja");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto messages = json(R"([{"role": "user", "content": "x"}])");
  write("tokenizer_config.json", "{}");
  EXPECT_FALSE(ChatTemplate::find(folder));
  EXPECT_FALSE(ChatTemplate::find(folder / "nowhere"));
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(ChatTemplate::find(folder)->render(messages, {}), "one");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]})");
  EXPECT_EQ(ChatTemplate::find(folder)->render(messages, {}), "three");
  EXPECT_EQ(ChatTemplate::find(folder, "tool_use")->render(messages, {}), "two");
  error_of(ExitCode::bad_data, [&] { ChatTemplate::find(folder, "other"); });
  write("tokenizer_config.json", R"({"chat_template": 3})");
  error_of(ExitCode::bad_data, [&] { ChatTemplate::find(folder); });
  write("chat_template.jinja", "four");
  EXPECT_EQ(ChatTemplate::find(folder)->render(messages, {}), "four");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace diffuse
