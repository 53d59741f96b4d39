#include "text/unigram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"

namespace diffuse {
namespace {

// A character that no piece covers is worth this much less than the worst piece.
constexpr double kUnknownPenalty = 10.0;
// Looking at a place of a text takes as long as the longest piece.
constexpr std::size_t kMaxPieceBytes = 1024;

Piece piece_of(const Json& entry, const std::string& where, std::size_t index) {
  if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
    throw_bad_data(where + ": 'vocab' entry " + std::to_string(index) + " is not a piece and its score");
  return {entry[0].get<std::string>(), entry[1].get<double>()};
}

// Of equal pieces the last one's place is the id.
Vocabulary places_of(const std::vector<Piece>& pieces) {
  Vocabulary vocabulary;
  vocabulary.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    vocabulary.insert_or_assign(pieces[i].text, static_cast<std::int32_t>(i));
  return vocabulary;
}

void check_pieces(const std::vector<Piece>& pieces, const std::string& where) {
  if (pieces.empty()) throw_bad_data(where + ": the vocabulary is empty");
  if (pieces.size() > static_cast<std::size_t>(kMaxTokenId))
    throw_bad_data(where + ": the vocabulary has more than " + std::to_string(kMaxTokenId) + " pieces");
  for (const auto& piece : pieces) {
    if (!std::isfinite(piece.score))
      throw_bad_data(where + ": the piece " + in_quotes(piece.text) + " has a score that is no number");
    if (piece.text.size() > kMaxPieceBytes)
      throw_refused(where + ": the piece " + in_quotes(piece.text) + " is longer than 1024 bytes");
  }
}

}  // namespace

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, std::int32_t>> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.emplace_back();
  // The pieces below a node: those in [begin, end) share their first `depth` bytes.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Range> below = {{0, pieces.size(), 0}};
  for (std::size_t node = 0; node < below.size(); ++node) {
    auto [begin, end, depth] = below[node];
    // Those that end here come first.
    for (; begin < end && pieces[begin].first.size() == depth; ++begin)
      nodes_[node].piece = pieces[begin].second;
    nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const auto byte = static_cast<unsigned char>(pieces[begin].first[depth]);
      auto next = begin + 1;
      while (next < end && static_cast<unsigned char>(pieces[next].first[depth]) == byte) ++next;
      nodes_.push_back({.byte = byte});
      ++nodes_[node].count;
      below.push_back({begin, next, depth + 1});
      begin = next;
    }
  }
  nodes_[0].piece = -1;
}

std::uint32_t PieceTrie::child(std::uint32_t node, unsigned char byte) const {
  const auto begin = nodes_.begin() + nodes_[node].first;
  const auto end = begin + nodes_[node].count;
  const auto found =
      std::lower_bound(begin, end, byte, [](const Node& child, unsigned char b) { return child.byte < b; });
  return found == end || found->byte != byte ? 0 : static_cast<std::uint32_t>(found - nodes_.begin());
}

UnigramModel UnigramModel::from_json(const Json& element, const std::string& where) {
  std::vector<Piece> pieces;
  const auto& list = require_array(element, "vocab", where);
  pieces.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) pieces.push_back(piece_of(list[i], where, i));
  const auto found = element.find("unk_id");
  std::int32_t unknown = -1;
  if (found != element.end() && !found->is_null()) unknown = token_id(*found, where + ": 'unk_id'");
  return from_pieces(std::move(pieces), unknown, bool_member(element, "byte_fallback", false, where),
                     Sums::tokenizers, where);
}

UnigramModel UnigramModel::from_pieces(std::vector<Piece> pieces, std::int32_t unknown, bool byte_fallback,
                                       Sums sums, const std::string& where) {
  check_pieces(pieces, where);
  if (unknown >= static_cast<std::int32_t>(pieces.size()))
    throw_bad_data(where + ": the unknown token's id " + std::to_string(unknown) +
                   " is beyond the vocabulary");
  UnigramModel model(pieces, places_of(pieces), sums, unknown, byte_fallback);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (model.pieces_[i].id != id) model.repeated_.emplace_back(pieces[i].text, id);
    model.pieces_[i].id = id;
  }
  model.unknown_piece_ = unknown;
  return model;
}

UnigramModel UnigramModel::with_vocabulary(std::vector<Piece> pieces, Vocabulary vocabulary,
                                           std::int32_t unknown, const std::string& where) {
  check_pieces(pieces, where);
  return {pieces, std::move(vocabulary), Sums::sentencepiece, unknown, false};
}

UnigramModel::UnigramModel(const std::vector<Piece>& pieces, Vocabulary vocabulary, Sums sums,
                           std::int32_t unknown, bool byte_fallback)
    : vocabulary_(std::move(vocabulary)),
      trie_([&] {
        std::vector<std::pair<std::string_view, std::int32_t>> known;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          if (sums == Sums::tokenizers || pieces[i].kind == PieceKind::normal)
            known.emplace_back(pieces[i].text, static_cast<std::int32_t>(i));
        }
        return PieceTrie(std::move(known));
      }()),
      unknown_(unknown),
      byte_fallback_(byte_fallback),
      sums_(sums) {
  const auto find = [&](std::string_view piece) {
    const auto found = vocabulary_.find(piece);
    return found == vocabulary_.end() ? -1 : found->second;
  };
  auto worst = std::numeric_limits<double>::infinity();
  pieces_.reserve(pieces.size());
  for (const auto& [text, score, kind] : pieces) {
    if (sums == Sums::tokenizers || kind == PieceKind::normal) worst = std::min(worst, score);
    pieces_.push_back({score, find(text)});
  }
  unknown_score_ = worst - kUnknownPenalty;
  if (sums == Sums::sentencepiece) unknown_score_ = static_cast<float>(unknown_score_);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = find(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + '>');
}

std::vector<UnigramModel::Best> UnigramModel::best_paths(std::string_view word) const {
  std::vector<Best> best(word.size() + 1);
  for (std::size_t at = 0; at < word.size();) {
    const auto begin = at;
    take_utf8(word, at);
    const auto here = best[begin].score;
    const auto offer = [&](std::size_t end, double score, std::int32_t piece) {
      auto& target = best[end];
      auto sum = score + here;
      if (sums_ == Sums::sentencepiece) sum = static_cast<float>(sum);
      if (target.begin < 0 || sum > target.score) target = {sum, piece, static_cast<std::int64_t>(begin)};
    };
    bool covered = false;
    trie_.each_prefix(word.substr(begin), [&](std::size_t bytes, std::int32_t piece) {
      offer(begin + bytes, pieces_[static_cast<std::size_t>(piece)].score, piece);
      covered = covered || begin + bytes == at;
    });
    if (!covered) offer(at, unknown_score_, unknown_piece_);
  }
  return best;
}

// A piece, or a run of characters without one.
void UnigramModel::append(std::string_view run, std::int32_t piece, std::vector<std::int32_t>& ids) const {
  if (piece != unknown_piece_) {
    const auto id = pieces_[static_cast<std::size_t>(piece)].id;
    ids.push_back(id >= 0 ? id : unknown_);
    return;
  }
  if (const auto found = vocabulary_.find(run); found != vocabulary_.end()) {
    ids.push_back(found->second);
    return;
  }
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::all_of(run.begin(), run.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : run) ids.push_back(id_of(byte));
    return;
  }
  if (unknown_ < 0)
    throw_bad_data("the text has " + in_quotes(run) +
                   ", which the tokenizer has no piece for, nor an unknown token");
  ids.push_back(unknown_);
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto best = best_paths(word);
  struct Cut {
    std::size_t begin;
    std::int32_t piece;
  };
  std::vector<Cut> cuts;
  for (auto end = word.size(); end > 0; end = cuts.back().begin)
    cuts.push_back({static_cast<std::size_t>(best[end].begin), best[end].piece});
  for (auto cut = cuts.rbegin(); cut != cuts.rend();) {
    const auto [begin, piece] = *cut++;
    // Characters without a piece go together.
    while (piece == unknown_piece_ && cut != cuts.rend() && cut->piece == unknown_piece_) ++cut;
    const auto end = cut == cuts.rend() ? word.size() : cut->begin;
    append(word.substr(begin, end - begin), piece, ids);
  }
}

}  // namespace diffuse
