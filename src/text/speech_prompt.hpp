#pragma once
// What a window is decoded behind: earlier text, the start, language and task, and a prefix.

#include <cstdint>
#include <span>
#include <vector>

#include "text/speech_tokens.hpp"

namespace diffuse {

enum class SpeechTask { transcribe, translate };

struct PromptParts {
  std::span<const std::int32_t> previous;  // text of earlier windows, the user's initial prompt in front
  std::span<const std::int32_t> hotwords;  // words to expect; left out where there is a prefix
  std::span<const std::int32_t> prefix;    // how this window's text begins
  std::int32_t language = -1;              // its token; -1 in a model of one language
  SpeechTask task = SpeechTask::transcribe;
  bool timestamps = true;
};

struct WindowPrompt {
  std::vector<std::int32_t> tokens;
  std::size_t start = 0;  // where <|startoftranscript|> stands; its logits tell whether anything is said
};

// So many tokens stand in front of the start at most.
std::size_t prompt_room(std::int64_t context);

// <|startofprev|> hotwords previous | start language task <|notimestamps|> or <|0.00|> with a prefix |
// prefix. In front of the start stand at most half of `context` (the decoder's positions): hotwords first,
// then as much of the end of `previous` as fits; a prefix has at most half too, and room for one more token
// is left. Behaviour: openai-whisper, and faster-whisper for hotwords and for the timestamp in front of a
// prefix.
WindowPrompt window_prompt(const SpeechTokens& tokens, const PromptParts& parts, std::int64_t context);

}  // namespace diffuse
