#pragma once
// The Unigram model: a word is cut where the sum of its pieces' scores (log-probabilities) is highest.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "text/bpe.hpp"
#include "text/piece.hpp"

namespace diffuse {

// Finds the pieces that begin a text. Pieces are sorted once; a node's children lie side by side.
class PieceTrie {
 public:
  // The pieces and what each is known by. Empty ones are left out; of equal ones the last counts.
  explicit PieceTrie(std::vector<std::pair<std::string_view, std::int32_t>> pieces);

  // Calls visit(bytes, piece) for each piece that begins `text`, the shortest first.
  template <typename Visit>
  void each_prefix(std::string_view text, Visit&& visit) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].piece >= 0) visit(i + 1, nodes_[node].piece);
    }
  }

 private:
  struct Node {
    std::uint32_t first = 0;  // of its children
    std::int32_t piece = -1;
    std::uint16_t count = 0;
    unsigned char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_;
};

// May be used by many threads at once.
class UnigramModel {
 public:
  // Whose sums: `tokenizers` adds in double and looks for every piece; the library of sentencepiece adds in
  // float and looks for normal ones. The two differ where sums are nearly equal.
  enum class Sums { tokenizers, sentencepiece };

  // The `model` element of a tokenizer.json. Throws bad data where it contradicts itself.
  static UnigramModel from_json(const Json& element, const std::string& where);
  // A piece's id is its place.
  static UnigramModel from_pieces(std::vector<Piece> pieces, std::int32_t unknown, bool byte_fallback,
                                  Sums sums, const std::string& where);
  // Ids come from `vocabulary` (a vocab.json): pieces that it lacks are `unknown`, which is one of its ids.
  static UnigramModel with_vocabulary(std::vector<Piece> pieces, Vocabulary vocabulary, std::int32_t unknown,
                                      const std::string& where);

  // Appends the ids of a word (valid UTF-8, not empty). A run of characters that no piece covers is looked up
  // as a whole, then falls back to its bytes, then is one unknown token. Throws bad data where there is none.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Ids whose piece stands again further on; the vocabulary knows the last only.
  const std::vector<std::pair<std::string, std::int32_t>>& repeated() const { return repeated_; }

 private:
  struct Scored {
    double score;
    std::int32_t id;
  };
  // The best way to a byte of the word.
  struct Best {
    double score = 0;
    std::int32_t piece = -1;
    std::int64_t begin = -1;  // of its last piece
  };
  UnigramModel(const std::vector<Piece>& pieces, Vocabulary vocabulary, Sums sums, std::int32_t unknown,
               bool byte_fallback);
  std::vector<Best> best_paths(std::string_view word) const;
  void append(std::string_view run, std::int32_t piece, std::vector<std::int32_t>& ids) const;

  std::vector<Scored> pieces_;
  Vocabulary vocabulary_;
  std::vector<std::pair<std::string, std::int32_t>> repeated_;
  PieceTrie trie_;
  std::array<std::int32_t, 256> byte_ids_{};
  double unknown_score_ = 0;
  std::int32_t unknown_ = -1;        // id
  std::int32_t unknown_piece_ = -1;  // the piece that stands for it, where there is one
  bool byte_fallback_ = false;
  Sums sums_ = Sums::tokenizers;
};

}  // namespace diffuse
