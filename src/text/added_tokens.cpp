#include "text/added_tokens.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"
#include "text/unicode.hpp"

namespace diffuse {
namespace {

// The time to look through a text grows with the longest token.
constexpr std::size_t kMaxTokenBytes = 1024;

bool word_ends(std::string_view text) {
  if (text.empty()) return false;
  auto at = before_utf8(text, text.size());
  return is_word_character(take_utf8(text, at));
}

bool word_starts(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && is_word_character(take_utf8(text, at));
}

std::size_t space_before(std::string_view text) {
  auto end = text.size();
  while (end > 0) {
    const auto begin = before_utf8(text, end);
    auto at = begin;
    if (!is_white_space(take_utf8(text, at))) break;
    end = begin;
  }
  return end;
}

std::size_t space_at_start(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    auto at = end;
    if (!is_white_space(take_utf8(text, at))) break;
    end = at;
  }
  return end;
}

}  // namespace

void TokenFinder::add(std::string_view pattern, const AddedToken& token, const std::string& where) {
  if (pattern.empty())
    throw_bad_data(where + ": the added token " + in_quotes(token.content) + " is normalized away");
  if (pattern.size() > kMaxTokenBytes)
    throw_refused(where + ": the added token " + in_quotes(token.content) + " is longer than 1024 bytes");
  std::int32_t node = -1;
  for (const char letter : pattern) {
    const auto byte = static_cast<unsigned char>(letter);
    auto& next = node < 0 ? first_[byte]
                          : nodes_[static_cast<std::size_t>(node)].next.try_emplace(byte, -1).first->second;
    if (next >= 0) {
      node = next;
      continue;
    }
    node = next = static_cast<std::int32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  auto& last = nodes_[static_cast<std::size_t>(node)];
  if (last.token >= 0) throw_bad_data(where + ": two added tokens are written " + in_quotes(pattern));
  last.token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::int32_t TokenFinder::step(std::int32_t node, unsigned char byte) const {
  if (node < 0) return first_[byte];
  const auto& next = nodes_[static_cast<std::size_t>(node)].next;
  const auto found = next.find(byte);
  return found == next.end() ? -1 : found->second;
}

const AddedToken* TokenFinder::longest_at(std::string_view text, std::size_t at, std::size_t& end) const {
  const AddedToken* found = nullptr;
  std::int32_t node = -1;
  for (auto i = at; i < text.size(); ++i) {
    node = step(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    if (const auto token = nodes_[static_cast<std::size_t>(node)].token; token >= 0) {
      found = &tokens_[static_cast<std::size_t>(token)];
      end = i + 1;
    }
  }
  return found;
}

std::vector<AddedPiece> TokenFinder::find(std::string_view text) const {
  std::vector<AddedPiece> pieces;
  std::size_t covered = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = 0;
    const auto* token = longest_at(text, at, end);
    if (token == nullptr) {
      ++at;
      continue;
    }
    auto begin = at;
    at = end;
    if (token->single_word && (word_ends(text.substr(0, begin)) || word_starts(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(space_before(text.substr(0, begin)), covered);
    if (token->rstrip) end += space_at_start(text.substr(end));
    if (covered < begin) pieces.push_back({{covered, begin}, -1});
    pieces.push_back({{begin, end}, token->id});
    covered = end;
  }
  if (covered != text.size()) pieces.push_back({{covered, text.size()}, -1});
  return pieces;
}

}  // namespace diffuse
