#pragma once
// Byte-pair encoding: a word's letters are joined pair by pair, the pair that was learned first before all
// others.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.hpp"
#include "text/byte_letters.hpp"
#include "text/piece.hpp"

namespace diffuse {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

// Reads {"piece": id, ...}. Throws bad data for an id out of range or one that two pieces claim.
Vocabulary read_vocabulary(const Json& object, const std::string& where);

// Pairs of ids -> the pair's rank and the id of what they become. Open addressing; never shrinks.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  explicit MergeTable(std::size_t count);
  void set(std::int32_t left, std::int32_t right, Merge merge);  // at most `count` different pairs
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const auto key = key_of(left, right);
    for (auto slot = hash(key);; ++slot) {
      const auto& entry = entries_[slot & mask_];
      if (entry.key == key) return &entry.merge;
      if (entry.key == kEmpty) return nullptr;
    }
  }

 private:
  struct Entry {
    std::uint64_t key;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint32_t>(right);
  }
  static std::uint64_t hash(std::uint64_t key) { return (key * 0x9E3779B97F4A7C15ULL) >> 20; }

  std::vector<Entry> entries_;
  std::uint64_t mask_;
};

// The BPE element. May be used by many threads at once; moved only before use.
class BpeModel {
 public:
  // Throws bad data for a merge of pieces that the vocabulary lacks and the like, refused for dropout.
  static BpeModel from_json(const Json& element, const std::string& where);

  // Of a sentencepiece model; a piece's id is its place. Runs of unknown characters are one unknown token.
  // `tokenizers` puts the merges in order by the place of what they become, then by the length of the left
  // side; the library of sentencepiece itself by score, then by where they stand in the word.
  enum class Order { tokenizers, sentencepiece };
  static BpeModel from_pieces(const std::vector<Piece>& pieces, std::int32_t unknown, bool byte_fallback,
                              Order order, const std::string& where);
  // From here on ids come from `vocabulary` (a vocab.json): pieces that it lacks are `unknown`, one of its
  // ids.
  void take_ids(Vocabulary vocabulary, std::int32_t unknown);

  // Appends the ids of a word (valid UTF-8, not empty).
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return ids_ ? ids_->vocabulary : vocabulary_; }

 private:
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
    bool alive;
  };
  // Words that were cut before. Bounded; a full cache takes nothing more.
  struct Cache {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<std::int32_t>, StringHash, std::equal_to<>> words;
  };

  // Ids that are not the model's own.
  struct OtherIds {
    Vocabulary vocabulary;
    std::vector<std::int32_t> of;  // each own id
  };

  BpeModel(Vocabulary vocabulary, MergeTable merges)
      : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)) {}
  void find_letters();
  std::int32_t find(std::string_view piece) const;
  std::vector<std::int32_t> letters_of(std::string_view word) const;
  bool fall_back(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge(std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, kByteLetterEnd> letter_ids_{};
  std::array<std::int32_t, 256> byte_ids_{};
  std::string prefix_;  // of pieces that do not begin a word
  std::string suffix_;  // of pieces that end one
  std::int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::optional<OtherIds> ids_;
  std::unique_ptr<Cache> cache_ = std::make_unique<Cache>();
};

}  // namespace diffuse
