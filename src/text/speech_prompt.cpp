#include "text/speech_prompt.hpp"

#include <algorithm>

namespace diffuse {

std::size_t prompt_room(std::int64_t context) {
  return static_cast<std::size_t>(std::max<std::int64_t>(context / 2 - 1, 0));
}

WindowPrompt window_prompt(const SpeechTokens& tokens, const PromptParts& parts, std::int64_t context) {
  const auto most = prompt_room(context);
  WindowPrompt prompt;
  auto& out = prompt.tokens;
  const auto append = [&](std::span<const std::int32_t> ids) {
    out.insert(out.end(), ids.begin(), ids.end());
  };

  const auto hotwords = parts.prefix.empty() ? parts.hotwords.first(std::min(most, parts.hotwords.size()))
                                             : std::span<const std::int32_t>();
  const auto previous = parts.previous.last(std::min(most - hotwords.size(), parts.previous.size()));
  if (!hotwords.empty() || !previous.empty()) out.push_back(tokens.previous);
  append(hotwords);
  append(previous);

  prompt.start = out.size();
  out.push_back(tokens.start);
  if (tokens.multilingual()) {
    out.push_back(parts.language);
    out.push_back(parts.task == SpeechTask::translate ? tokens.translate : tokens.transcribe);
  }
  if (!parts.timestamps) out.push_back(tokens.no_timestamps);
  if (parts.prefix.empty()) return prompt;
  if (parts.timestamps) out.push_back(tokens.first_timestamp);
  const auto room = static_cast<std::size_t>(
      std::max<std::int64_t>(context - static_cast<std::int64_t>(out.size()) - 1, 0));
  append(parts.prefix.first(std::min({most, room, parts.prefix.size()})));
  return prompt;
}

}  // namespace diffuse
