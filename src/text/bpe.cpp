#include "text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <queue>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kCachedWords = 1U << 16;
constexpr std::size_t kCachedBytes = 256;
// Positions within a word are 32 bits.
constexpr std::size_t kMaxWordBytes = 1U << 30;

struct Candidate {
  std::uint32_t rank;
  std::int32_t at;
  std::int32_t result;
};

// The lowest rank first, the leftmost among equals.
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }
};

struct Pair {
  std::string left;
  std::string right;
};

Pair pair_of(const Json& merge, const std::string& where, std::size_t index) {
  const auto here = where + ": merge " + std::to_string(index);
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  throw_bad_data(here + " is not a pair of pieces");
}

std::int32_t piece_of(const Vocabulary& vocabulary, const std::string& piece, const std::string& where,
                      std::size_t index) {
  const auto found = vocabulary.find(piece);
  if (found == vocabulary.end())
    throw_bad_data(where + ": merge " + std::to_string(index) + " names " + in_quotes(piece) +
                   ", which the vocabulary lacks");
  return found->second;
}

MergeTable read_merges(const Json& list, const Vocabulary& vocabulary, const std::string& prefix,
                       const std::string& where) {
  MergeTable table(list.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    // merges.txt's first line, which old converters copied.
    if (list[i].is_string() && list[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = pair_of(list[i], where, i);
    if (!right.starts_with(prefix))
      throw_bad_data(where + ": merge " + std::to_string(i) + " has a right side without " +
                     in_quotes(prefix));
    const auto left_id = piece_of(vocabulary, left, where, i);
    const auto right_id = piece_of(vocabulary, right, where, i);
    const auto joined = left + right.substr(prefix.size());
    table.set(left_id, right_id, {rank, piece_of(vocabulary, joined, where, i)});
    ++rank;
  }
  return table;
}

// Every way to put a piece together from two others.
MergeTable merges_of(const std::vector<Piece>& pieces, const Vocabulary& vocabulary, BpeModel::Order order,
                     const std::string& where) {
  // The time this takes grows with the square of a piece's length.
  constexpr std::size_t kMaxPieceBytes = 1024;
  struct Found {
    std::int32_t left;
    std::int32_t right;
    std::int32_t result;
  };
  std::vector<std::int32_t> in_order;
  for (const auto& [text, id] : vocabulary) {
    if (text.size() > kMaxPieceBytes)
      throw_refused(where + ": the piece " + in_quotes(text) + " is longer than 1024 bytes");
    in_order.push_back(id);
  }
  const bool by_score = order == BpeModel::Order::sentencepiece;
  const auto score = [&](std::int32_t id) { return pieces[static_cast<std::size_t>(id)].score; };
  std::sort(in_order.begin(), in_order.end(), [&](std::int32_t a, std::int32_t b) {
    if (by_score && score(a) != score(b)) return score(a) > score(b);
    return a < b;
  });
  std::vector<Found> found;
  for (const auto id : in_order) {
    const auto& piece = pieces[static_cast<std::size_t>(id)];
    if (by_score && piece.kind != PieceKind::normal) continue;
    for (std::size_t at = 0; take_utf8(piece.text, at), at < piece.text.size();) {
      const auto left = vocabulary.find(std::string_view(piece.text).substr(0, at));
      if (left == vocabulary.end()) continue;
      const auto right = vocabulary.find(std::string_view(piece.text).substr(at));
      if (right != vocabulary.end()) found.push_back({left->second, right->second, id});
    }
  }
  MergeTable table(found.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i > 0 && (!by_score || score(found[i].result) != score(found[i - 1].result))) ++rank;
    table.set(found[i].left, found[i].right, {rank, found[i].result});
  }
  return table;
}

}  // namespace

Vocabulary read_vocabulary(const Json& object, const std::string& where) {
  if (!object.is_object()) throw_bad_data(where + ": 'vocab' must be an object of pieces and ids");
  Vocabulary vocabulary;
  vocabulary.reserve(object.size());
  std::vector<bool> taken;
  for (const auto& [piece, value] : object.items()) {
    const auto id = token_id(value, where + ": 'vocab' " + in_quotes(piece));
    const auto index = static_cast<std::size_t>(id);
    if (index >= taken.size()) taken.resize(std::max(index + 1, taken.size() * 2));
    if (taken[index]) throw_bad_data(where + ": 'vocab' gives the id " + std::to_string(id) + " twice");
    taken[index] = true;
    vocabulary.emplace(piece, id);
  }
  return vocabulary;
}

MergeTable::MergeTable(std::size_t count) : mask_(std::bit_ceil(2 * count + 2) - 1) {
  entries_.assign(mask_ + 1, Entry{kEmpty, {}});
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const auto key = key_of(left, right);
  auto slot = hash(key);
  while (entries_[slot & mask_].key != kEmpty && entries_[slot & mask_].key != key) ++slot;
  entries_[slot & mask_] = {key, merge};
}

BpeModel BpeModel::from_json(const Json& element, const std::string& where) {
  const auto found = element.find("vocab");
  auto vocabulary = read_vocabulary(found == element.end() ? Json() : *found, where);
  const auto prefix = string_member(element, "continuing_subword_prefix", where).value_or("");
  auto merges = read_merges(require_array(element, "merges", where), vocabulary, prefix, where);

  BpeModel model(std::move(vocabulary), std::move(merges));
  model.prefix_ = prefix;
  model.suffix_ = string_member(element, "end_of_word_suffix", where).value_or("");
  model.fuse_unknown_ = bool_member(element, "fuse_unk", false, where);
  model.byte_fallback_ = bool_member(element, "byte_fallback", false, where);
  model.ignore_merges_ = bool_member(element, "ignore_merges", false, where);
  if (const auto dropout = element.find("dropout"); dropout != element.end() && !dropout->is_null()) {
    if (!dropout->is_number() || dropout->get<double>() != 0)
      throw_refused(where + ": 'dropout' would make the ids of a text depend on chance");
  }
  if (const auto unknown = string_member(element, "unk_token", where)) {
    model.unknown_ = model.find(*unknown);
    if (model.unknown_ < 0)
      throw_bad_data(where + ": the vocabulary lacks the unk_token " + in_quotes(*unknown));
  }
  model.find_letters();
  return model;
}

BpeModel BpeModel::from_pieces(const std::vector<Piece>& pieces, std::int32_t unknown, bool byte_fallback,
                               Order order, const std::string& where) {
  Vocabulary vocabulary;
  vocabulary.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    vocabulary.insert_or_assign(pieces[i].text, static_cast<std::int32_t>(i));
  auto merges = merges_of(pieces, vocabulary, order, where);
  BpeModel model(std::move(vocabulary), std::move(merges));
  model.unknown_ = unknown;
  model.fuse_unknown_ = true;
  model.byte_fallback_ = byte_fallback;
  model.find_letters();
  return model;
}

void BpeModel::take_ids(Vocabulary vocabulary, std::int32_t unknown) {
  std::vector<std::int32_t> of(vocabulary_.size(), unknown);
  for (const auto& [piece, own] : vocabulary_) {
    const auto index = static_cast<std::size_t>(own);
    if (index >= of.size()) of.resize(index + 1, unknown);
    if (const auto found = vocabulary.find(piece); found != vocabulary.end()) of[index] = found->second;
  }
  ids_ = OtherIds{std::move(vocabulary), std::move(of)};
}

void BpeModel::find_letters() {
  for (char32_t code = 0; code < kByteLetterEnd; ++code) {
    std::string letter;
    append_utf8(letter, code);
    letter_ids_[code] = find(letter);
  }
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = find(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + '>');
}

std::int32_t BpeModel::find(std::string_view piece) const {
  const auto found = vocabulary_.find(piece);
  return found == vocabulary_.end() ? -1 : found->second;
}

bool BpeModel::fall_back(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(piece.begin(), piece.end(), [&](char byte) { return id_of(byte) >= 0; })) return false;
  for (const char byte : piece) ids.push_back(id_of(byte));
  return true;
}

// The ids of single characters. Unknown ones wait until the next known one, as in the original: bytes that an
// unknown one falls back to come before it.
std::vector<std::int32_t> BpeModel::letters_of(std::string_view word) const {
  std::vector<std::int32_t> ids;
  ids.reserve(word.size());
  bool waiting = false;
  std::string joined;
  for (std::size_t at = 0; at < word.size();) {
    const auto begin = at;
    const auto code = take_utf8(word, at);
    auto piece = word.substr(begin, at - begin);
    const bool bare = (begin == 0 || prefix_.empty()) && (at < word.size() || suffix_.empty());
    if (!bare) {
      joined = begin == 0 ? "" : prefix_;
      joined += piece;
      if (at == word.size()) joined += suffix_;
      piece = joined;
    }
    const auto id = bare && code < kByteLetterEnd ? letter_ids_[code] : find(piece);
    if (id >= 0) {
      if (waiting) ids.push_back(unknown_);
      waiting = false;
      ids.push_back(id);
      continue;
    }
    if (byte_fallback_ && fall_back(piece, ids)) continue;
    if (unknown_ < 0) continue;
    if (waiting && !fuse_unknown_) ids.push_back(unknown_);
    waiting = true;
  }
  if (waiting) ids.push_back(unknown_);
  return ids;
}

void BpeModel::merge(std::vector<std::int32_t>& ids) const {
  const auto count = static_cast<std::int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<Candidate> found;
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[static_cast<std::size_t>(i)] = {ids[static_cast<std::size_t>(i)], i - 1,
                                            i + 1 < count ? i + 1 : -1, true};
    if (i + 1 == count) break;
    if (const auto* pair =
            merges_.find(ids[static_cast<std::size_t>(i)], ids[static_cast<std::size_t>(i) + 1]))
      found.push_back({pair->rank, i, pair->result});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue(Later{}, std::move(found));
  const auto symbol = [&](std::int32_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    if (const auto* pair = merges_.find(symbol(left).id, symbol(right).id))
      queue.push({pair->rank, left, pair->result});
  };
  while (!queue.empty()) {
    const auto top = queue.top();
    queue.pop();
    auto& left = symbol(top.at);
    if (!left.alive || left.next < 0) continue;
    auto& right = symbol(left.next);
    // Entries outlive the pairs they were made for.
    const auto* pair = merges_.find(left.id, right.id);
    if (pair == nullptr || pair->result != top.result) continue;
    left.id = top.result;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = top.at;
    if (left.previous >= 0) consider(left.previous, top.at);
    if (left.next >= 0) consider(top.at, left.next);
  }
  ids.clear();
  for (std::int32_t at = 0; at >= 0; at = symbol(at).next) ids.push_back(symbol(at).id);
}

void BpeModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > kMaxWordBytes) throw_refused("a word of more than 1 GiB cannot be cut into tokens");
  if (ignore_merges_) {
    if (const auto id = find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  const bool cached = word.size() <= kCachedBytes;
  if (cached) {
    const std::lock_guard lock(cache_->mutex);
    if (const auto found = cache_->words.find(word); found != cache_->words.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  auto own = letters_of(word);
  if (own.size() > 1) merge(own);
  if (ids_) {
    for (auto& id : own) id = ids_->of[static_cast<std::size_t>(id)];
  }
  ids.insert(ids.end(), own.begin(), own.end());
  if (!cached) return;
  const std::lock_guard lock(cache_->mutex);
  if (cache_->words.size() < kCachedWords) cache_->words.emplace(word, std::move(own));
}

}  // namespace diffuse
