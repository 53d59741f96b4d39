#include "text/token_decoder.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "text/byte_letters.hpp"
#include "text/element.hpp"
#include "text/unicode.hpp"

namespace diffuse {
namespace {

// The byte that "<0xE2>" stands for, or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else if (digit >= 'a' && digit <= 'f') {
      value += digit - 'a' + 10;
    } else {
      return -1;
    }
  }
  return value;
}

}  // namespace

TokenDecoder TokenDecoder::from_json(const Json& element, const std::string& where) {
  TokenDecoder decoder;
  if (element.is_null()) {
    decoder.steps_.emplace_back(Spaced{});
  } else {
    decoder.add(element, where);
  }
  return decoder;
}

TokenDecoder TokenDecoder::trimmed(const std::string& space) {
  TokenDecoder decoder;
  decoder.steps_.emplace_back(Replace{TextPattern(space), " "});
  decoder.steps_.emplace_back(Trim{});
  return decoder;
}

void TokenDecoder::add(const Json& element, const std::string& where) {
  const auto type = element_type(element, where);
  const auto here = where + " " + in_quotes(type);
  if (type == "Sequence") {
    for (const auto& inner : require_array(element, "decoders", here)) add(inner, where);
    return;
  }
  const bool wants_whole =
      type == "ByteLevel" || type == "ByteFallback" || type == "Replace" || type == "BPEDecoder";
  if (wants_whole && pieces_)
    throw_refused(here + " behind ByteLevel or Fuse cannot be streamed by this build");
  if (type == "ByteLevel") {
    steps_.emplace_back(Bytes{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(Fallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Replace") {
    steps_.emplace_back(
        Replace{TextPattern::from_json(element, here), require_string(element, "content", here)});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{require_letter(element, "content", here), require_count(element, "start", here),
                              require_count(element, "stop", here)});
  } else if (type == "Metaspace") {
    const bool never = string_member(element, "prepend_scheme", here).value_or("always") == "never" ||
                       !bool_member(element, "add_prefix_space", true, here);
    steps_.emplace_back(Unspace{require_letter(element, "replacement", here), !never});
  } else if (type == "BPEDecoder") {
    steps_.emplace_back(WordEnd{string_member(element, "suffix", here).value_or("</w>")});
  } else {
    throw_refused(here + " is not known to this build");
  }
  // Strip lets a token go as it comes, so what follows it sees pieces as well.
  pieces_ = pieces_ || type == "ByteLevel" || type == "Fuse" || type == "Strip";
}

std::string TokenDecoder::Stream::push(std::string_view token) {
  feed(0, token, true);
  return std::exchange(out_, {});
}

std::string TokenDecoder::Stream::finish() {
  close(0);
  return std::exchange(out_, {});
}

void TokenDecoder::Stream::feed(std::size_t step, std::string_view piece, bool begins) {
  if (step == states_.size()) {
    out_ += piece;
    return;
  }
  std::visit([&](const auto& kind) { feed(kind, step, piece, begins); }, decoder_->steps_[step]);
}

void TokenDecoder::Stream::close(std::size_t step) {
  if (step == states_.size()) return;
  auto& state = states_[step];
  const auto& kind = decoder_->steps_[step];
  if (std::holds_alternative<Bytes>(kind)) {
    feed(step + 1, state.utf8.finish(), state.tokens == 0);
  } else if (std::holds_alternative<Fallback>(kind)) {
    flush(step);
  } else if (const auto* strip = std::get_if<Strip>(&kind)) {
    if (state.tokens > 0) end_token(*strip, step);
  } else if (const auto* end = std::get_if<WordEnd>(&kind)) {
    if (state.tokens > 0) feed(step + 1, TextPattern(end->suffix).replace(state.held, ""), true);
  }
  close(step + 1);
}

void TokenDecoder::Stream::feed(const Bytes&, std::size_t step, std::string_view piece, bool) {
  auto& state = states_[step];
  // A token with other characters stands for itself (added tokens do).
  const auto bytes = bytes_of_letters(piece);
  const auto text = state.utf8.push(bytes ? std::string_view(*bytes) : piece);
  feed(step + 1, text, state.tokens++ == 0);
}

void TokenDecoder::Stream::feed(const Spaced&, std::size_t step, std::string_view piece, bool) {
  if (states_[step].tokens++ > 0) feed(step + 1, " ", true);
  feed(step + 1, piece, true);
}

void TokenDecoder::Stream::feed(const Fallback&, std::size_t step, std::string_view piece, bool) {
  if (const auto byte = byte_of(piece); byte >= 0) {
    states_[step].held += static_cast<char>(byte);
    return;
  }
  flush(step);
  feed(step + 1, piece, true);
}

// Bytes can only go on together: one that is not part of a character makes all of the run U+FFFD.
void TokenDecoder::Stream::flush(std::size_t step) {
  const auto run = std::exchange(states_[step].held, {});
  if (run.empty()) return;
  if (is_valid_utf8(run)) {
    feed(step + 1, run, true);
    return;
  }
  for (std::size_t i = 0; i < run.size(); ++i) feed(step + 1, kReplacementUtf8, true);
}

void TokenDecoder::Stream::feed(const Fuse&, std::size_t step, std::string_view piece, bool) {
  feed(step + 1, piece, states_[step].tokens++ == 0);
}

void TokenDecoder::Stream::feed(const Replace& kind, std::size_t step, std::string_view piece, bool) {
  feed(step + 1, kind.pattern.replace(piece, kind.content), true);
}

void TokenDecoder::Stream::feed(const Strip& kind, std::size_t step, std::string_view piece, bool begins) {
  auto& state = states_[step];
  if (begins) {
    if (state.tokens++ > 0) end_token(kind, step);
    state.stripped = 0;
    state.at_head = true;
    feed(step + 1, "", true);
  }
  while (state.at_head && state.stripped < kind.start && piece.starts_with(kind.letter)) {
    piece.remove_prefix(kind.letter.size());
    ++state.stripped;
  }
  if (piece.empty()) return;
  state.at_head = false;
  // Letters at the end wait: only the last of them are taken off, should the token end here.
  state.held += piece;
  auto kept = state.held.size();
  while (kept >= kind.letter.size() && kind.stop > 0 &&
         std::string_view(state.held).substr(0, kept).ends_with(kind.letter))
    kept -= kind.letter.size();
  feed(step + 1, std::string_view(state.held).substr(0, kept), false);
  state.held.erase(0, kept);
}

void TokenDecoder::Stream::end_token(const Strip& kind, std::size_t step) {
  auto rest = std::exchange(states_[step].held, {});
  const auto letters = rest.size() / kind.letter.size();
  rest.resize(rest.size() - std::min(letters, kind.stop) * kind.letter.size());
  feed(step + 1, rest, false);
}

void TokenDecoder::Stream::feed(const Unspace& kind, std::size_t step, std::string_view piece, bool begins) {
  auto& state = states_[step];
  if (begins) ++state.tokens;
  const bool drop = kind.drop_in_first && state.tokens == 1;
  feed(step + 1, TextPattern(kind.replacement).replace(piece, drop ? "" : " "), begins);
}

void TokenDecoder::Stream::feed(const WordEnd& kind, std::size_t step, std::string_view piece, bool) {
  auto& state = states_[step];
  if (state.tokens++ > 0) feed(step + 1, TextPattern(kind.suffix).replace(state.held, " "), true);
  state.held = piece;
}

// White space waits for what follows it; in front of the text and behind it there is nothing.
void TokenDecoder::Stream::feed(const Trim&, std::size_t step, std::string_view piece, bool) {
  auto& state = states_[step];
  std::size_t sure = 0;
  for (std::size_t at = 0; at < piece.size();) {
    if (!is_python_space(take_utf8(piece, at))) sure = at;
  }
  if (sure == 0) {
    if (state.tokens > 0) state.held += piece;
    return;
  }
  if (state.tokens == 0) {
    std::size_t begin = 0;
    for (auto at = begin; is_python_space(take_utf8(piece, at));) begin = at;
    piece.remove_prefix(begin);
    sure -= begin;
  }
  feed(step + 1, std::exchange(state.held, {}) + std::string(piece.substr(0, sure)), state.tokens++ == 0);
  state.held = piece.substr(sure);
}

}  // namespace diffuse
