#include "text/sentencepiece_model.hpp"

#include <bit>
#include <optional>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"

namespace diffuse {
namespace {

// The fields of a protocol buffer message, one after another.
class Fields {
 public:
  struct Field {
    std::uint64_t number;
    std::uint64_t value;     // of a number
    std::string_view bytes;  // of a string or message
  };
  Fields(std::string_view message, const std::string& what) : rest_(message), what_(&what) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const auto key = varint();
    Field field{key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        broken();
    }
    if (field.number == 0) broken();
    return field;
  }

 private:
  [[noreturn]] void broken() const {
    throw_bad_data(*what_ + " is no sentencepiece model, or it is damaged");
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) broken();
    const auto taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }
  std::uint64_t fixed(int bytes) {
    std::uint64_t value = 0;
    const auto taken = take(static_cast<std::uint64_t>(bytes));
    for (int i = bytes; i-- > 0;)
      value = (value << 8) | static_cast<unsigned char>(taken[static_cast<std::size_t>(i)]);
    return value;
  }

  std::string_view rest_;
  const std::string* what_;
};

PieceKind kind_of(std::uint64_t type, const std::string& what) {
  switch (type) {
    case 1:
      return PieceKind::normal;
    case 2:
      return PieceKind::unknown;
    case 3:
      return PieceKind::control;
    case 4:
      return PieceKind::user_defined;
    case 5:
      return PieceKind::unused;
    case 6:
      return PieceKind::byte;
    default:
      throw_bad_data(what + ": a piece of the type " + std::to_string(type));
  }
}

Piece read_piece(std::string_view message, const std::string& what) {
  Piece piece;
  Fields fields(message, what);
  while (const auto field = fields.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    if (field->number == 3) piece.kind = kind_of(field->value, what);
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text))
    throw_bad_data(what + ": a piece that is empty or no UTF-8");
  return piece;
}

void read_trainer(std::string_view message, SentencePieceModel& model, const std::string& what) {
  Fields fields(message, what);
  while (const auto field = fields.next()) {
    if (field->number == 3 && field->value != 1 && field->value != 2)
      throw_refused(what + " is a model of words or characters, and this build has Unigram and BPE");
    if (field->number == 3)
      model.algorithm =
          field->value == 1 ? SentencePieceModel::Algorithm::unigram : SentencePieceModel::Algorithm::bpe;
    if (field->number == 24 && field->value != 0)
      throw_refused(what + " puts spaces behind words, which is not known to this build");
    if (field->number == 35) model.byte_fallback = field->value != 0;
    if (field->number == 40) {
      if (field->value > static_cast<std::uint64_t>(kMaxTokenId))
        throw_bad_data(what + ": the unknown token has no id");
      model.unknown = static_cast<std::int32_t>(field->value);
    }
  }
}

void read_normalizer(std::string_view message, SentencePieceModel& model, const std::string& what) {
  Fields fields(message, what);
  while (const auto field = fields.next()) {
    if (field->number == 2 && !field->bytes.empty())
      model.charsmap = std::make_shared<Charsmap>(Charsmap::parse(field->bytes, what));
    if (field->number == 3) model.space_in_front = field->value != 0;
    if (field->number == 4) model.remove_extra_spaces = field->value != 0;
    if (field->number == 5) model.escape_spaces = field->value != 0;
  }
}

void check_denormalizer(std::string_view message, const std::string& what) {
  Fields fields(message, what);
  while (const auto field = fields.next()) {
    if (field->number == 2 && !field->bytes.empty())
      throw_refused(what + " rewrites decoded text, which is not known to this build");
  }
}

}  // namespace

SentencePieceModel SentencePieceModel::read(const std::filesystem::path& path) {
  return parse(read_file(path, 256U << 20), "'" + path.string() + "'");
}

SentencePieceModel SentencePieceModel::parse(std::string_view bytes, const std::string& what) {
  SentencePieceModel model;
  Fields fields(bytes, what);
  while (const auto field = fields.next()) {
    if (field->number == 1) {
      if (model.pieces.size() > static_cast<std::size_t>(kMaxTokenId))
        throw_bad_data(what + " has more than " + std::to_string(kMaxTokenId) + " pieces");
      model.pieces.push_back(read_piece(field->bytes, what));
    }
    if (field->number == 2) read_trainer(field->bytes, model, what);
    if (field->number == 3) read_normalizer(field->bytes, model, what);
    if (field->number == 5) check_denormalizer(field->bytes, what);
  }
  if (model.pieces.empty()) throw_bad_data(what + " is no sentencepiece model: it has no pieces");
  const auto unknown = static_cast<std::size_t>(model.unknown);
  if (unknown >= model.pieces.size() || model.pieces[unknown].kind != PieceKind::unknown)
    throw_bad_data(what + ": the unknown token's id " + std::to_string(unknown) + " is another piece");
  return model;
}

Normalizer::SentencePiece SentencePieceModel::normalizer() const {
  return {charsmap, remove_extra_spaces, space_in_front, escape_spaces};
}

}  // namespace diffuse
