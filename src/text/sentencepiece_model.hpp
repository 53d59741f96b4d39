#pragma once
// A sentencepiece model file (spiece.model, sentencepiece.bpe.model, tokenizer.model, source.spm): the parts
// of its protocol buffer that say how text becomes pieces. Read by a reader of our own, in which every length
// is checked, because the file is a stranger's.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/charsmap.hpp"
#include "text/normalizer.hpp"
#include "text/piece.hpp"

namespace diffuse {

struct SentencePieceModel {
  enum class Algorithm { unigram, bpe };

  std::vector<Piece> pieces;  // an id is a place
  Algorithm algorithm = Algorithm::unigram;
  std::int32_t unknown = 0;  // the id of the unknown piece
  bool byte_fallback = false;
  std::shared_ptr<const Charsmap> charsmap;  // null: the text stays as it is
  bool space_in_front = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;

  // Throws missing input where the file cannot be opened, bad data where it is no such model, refused for one
  // of words or characters and for settings that would need more than this reads.
  static SentencePieceModel read(const std::filesystem::path& path);
  static SentencePieceModel parse(std::string_view bytes, const std::string& what);

  // What the library of sentencepiece does to a text before it looks for pieces, user-defined ones aside.
  Normalizer::SentencePiece normalizer() const;
};

}  // namespace diffuse
