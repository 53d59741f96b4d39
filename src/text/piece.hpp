#pragma once
// A piece of a sentencepiece vocabulary.

#include <string>

namespace diffuse {

enum class PieceKind { normal, unknown, control, user_defined, unused, byte };

struct Piece {
  std::string text;
  double score = 0;
  PieceKind kind = PieceKind::normal;
};

}  // namespace diffuse
