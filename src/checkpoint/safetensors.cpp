#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/size.hpp"

namespace diffuse {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;

struct KnownType {
  std::string_view name;
  std::optional<DType> dtype;  // absent: this build does not read it
};
constexpr std::array kTypes = {
    KnownType{"F32", DType::f32}, KnownType{"F16", DType::f16}, KnownType{"BF16", DType::bf16},
    KnownType{"F64", DType::f64}, KnownType{"I64", DType::i64}, KnownType{"I32", DType::i32},
    KnownType{"I8", DType::i8},   KnownType{"U8", DType::u8},   KnownType{"BOOL", DType::boolean},
    KnownType{"I16", {}},         KnownType{"U16", {}},         KnownType{"U32", {}},
    KnownType{"U64", {}},         KnownType{"F8_E4M3", {}},     KnownType{"F8_E5M2", {}},
    KnownType{"F8_E8M0", {}},     KnownType{"F8_E4M3FNUZ", {}}, KnownType{"F8_E5M2FNUZ", {}},
    KnownType{"F4", {}},          KnownType{"F6_E2M3", {}},     KnownType{"F6_E3M2", {}},
    KnownType{"C64", {}},
};

std::string text_of(std::uint64_t number) {
  return std::to_string(number);
}

class HeaderReader {
 public:
  explicit HeaderReader(const OpenFile& file)
      : file_(file), what_("weights file '" + file.path().string() + "'") {}

  std::map<std::string, StoredTensor> read() {
    const auto json = header_json();
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, value] : json.items()) {
      if (name == "__metadata__") {
        check_metadata(value);
      } else {
        tensors.emplace(name, tensor(name, value));
      }
    }
    check_layout(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void bad(const std::string& found) const {
    throw_bad_data(what_ + ": " + found + "; the file is damaged or not safetensors, get it again");
  }
  [[noreturn]] void bad_tensor(const std::string& name, const std::string& found) const {
    bad("tensor " + shown(name) + ": " + found);
  }

  Json header_json() {
    if (file_.size() < kLengthBytes) bad("it has " + text_of(file_.size()) + " bytes, too few for a header");
    std::array<std::byte, kLengthBytes> length{};
    file_.read(0, length);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < length.size(); ++i) {
      bytes |= static_cast<std::uint64_t>(length[i]) << (8 * i);
    }
    if (bytes > kMaxHeaderBytes)
      bad("its header claims " + text_of(bytes) + " bytes, more than the 100000000 allowed");
    if (bytes > file_.size() - kLengthBytes)
      bad("its header claims " + text_of(bytes) + " bytes, more than the file has after its length");
    std::string text(bytes, '\0');
    file_.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    if (text.empty() || text.front() != '{') bad("its header does not begin with '{'");
    data_begin_ = kLengthBytes + bytes;
    return parse_json(text, what_ + ": header", DuplicateKeys::refuse);
  }

  void check_metadata(const Json& metadata) const {
    if (!metadata.is_object()) bad("__metadata__ is " + shown(metadata) + ", not an object of texts");
    for (const auto& [key, value] : metadata.items()) {
      if (!value.is_string()) bad("__metadata__ has " + shown(value) + " at " + shown(key) + ", not a text");
    }
  }

  const Json& member(const std::string& name, const Json& value, const char* key) const {
    const auto found = value.find(key);
    if (found == value.end()) bad_tensor(name, "it has no " + std::string(key));
    return *found;
  }

  std::uint64_t whole_number(const std::string& name, const Json& value, const char* key) const {
    if (!value.is_number_unsigned()) bad_tensor(name, std::string(key) + " holds " + shown(value));
    return value.get<std::uint64_t>();
  }

  DType dtype(const std::string& name, const Json& value) const {
    if (!value.is_string()) bad_tensor(name, "dtype is " + shown(value) + ", not a text");
    const auto& text = value.get_ref<const std::string&>();
    const auto known =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.name == text; });
    if (known == kTypes.end())
      bad_tensor(name, "dtype " + shown(value) + " is not one that safetensors knows");
    if (!known->dtype) {
      throw_refused(what_ + ": tensor " + shown(name) + " has type " + text +
                    ", which this build cannot run yet; use a checkpoint stored as F32, F16 or BF16");
    }
    return *known->dtype;
  }

  StoredTensor tensor(const std::string& name, const Json& value) const {
    if (!value.is_object()) bad_tensor(name, "it is described by " + shown(value) + ", not an object");
    StoredTensor stored;
    stored.header.dtype = dtype(name, member(name, value, "dtype"));
    const auto& shape = member(name, value, "shape");
    if (!shape.is_array()) bad_tensor(name, "shape is " + shown(shape) + ", not a list");
    for (const auto& dimension : shape) {
      const auto size = whole_number(name, dimension, "shape");
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        bad_tensor(name, "shape holds " + shown(dimension));
      stored.header.shape.push_back(static_cast<std::int64_t>(size));
    }
    const auto& offsets = member(name, value, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2)
      bad_tensor(name, "data_offsets is " + shown(offsets) + ", not [begin, end]");
    const auto begin = whole_number(name, offsets[0], "data_offsets");
    const auto end = whole_number(name, offsets[1], "data_offsets");
    if (begin > end) bad_tensor(name, "data_offsets " + shown(offsets) + " end before they begin");
    if (end > file_.size() - data_begin_) {
      bad_tensor(name, "data_offsets " + shown(offsets) + " reach over the " +
                           text_of(file_.size() - data_begin_) + " bytes of data in the file");
    }
    stored.offset = data_begin_ + begin;
    stored.bytes = end - begin;
    check_size(name, shape, stored);
    return stored;
  }

  void check_size(const std::string& name, const Json& shape, const StoredTensor& stored) const {
    std::uint64_t expected = 0;
    try {
      expected = (CheckedSize(count_of(stored.header.shape)) * size_of(stored.header.dtype)).value();
    } catch (const Error&) {
      bad_tensor(name, "the size of shape " + shown(shape) + " overflows 64 bits");
    }
    if (expected != stored.bytes) {
      bad_tensor(name, "shape " + shown(shape) + " of " + std::string(name_of(stored.header.dtype)) +
                           " takes " + text_of(expected) + " bytes, data_offsets give it " +
                           text_of(stored.bytes));
    }
  }

  void check_layout(const std::map<std::string, StoredTensor>& tensors) const {
    std::vector<std::map<std::string, StoredTensor>::const_iterator> order;
    order.reserve(tensors.size());
    for (auto at = tensors.begin(); at != tensors.end(); ++at) order.push_back(at);
    std::sort(order.begin(), order.end(), [](const auto& left, const auto& right) {
      return std::pair(left->second.offset, left->second.bytes) <
             std::pair(right->second.offset, right->second.bytes);
    });
    auto expected = data_begin_;
    for (const auto& at : order) {
      const auto& stored = at->second;
      if (stored.offset != expected) {
        bad_tensor(at->first,
                   "it begins at byte " + text_of(stored.offset - data_begin_) + " of the data, " +
                       (stored.offset > expected ? "leaving a hole after" : "overlapping the tensor before") +
                       " byte " + text_of(expected - data_begin_));
      }
      expected += stored.bytes;
    }
    if (expected != file_.size())
      bad("its tensors end at byte " + text_of(expected) + ", the file at byte " + text_of(file_.size()));
  }

  const OpenFile& file_;
  std::string what_;
  std::uint64_t data_begin_ = 0;
};

}  // namespace

std::map<std::string, StoredTensor> read_safetensors_header(const OpenFile& file) {
  return HeaderReader(file).read();
}

OnlyTensor read_only_tensor(const std::filesystem::path& path) {
  const OpenFile file(path);
  const auto tensors = read_safetensors_header(file);
  const auto what = "'" + path.string() + "'";
  if (tensors.size() != 1)
    throw_bad_data(what + " holds " + std::to_string(tensors.size()) + " tensors, and one is expected");
  const auto& [name, stored] = *tensors.begin();
  const auto type = stored.header.dtype;
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
    throw_bad_data(what + ": its tensor '" + name + "' is of " + std::string(name_of(type)) +
                   "; f32, f16 or bf16 is expected");
  const auto bytes = file.read_range(stored.offset, static_cast<std::size_t>(stored.bytes));
  std::vector<float> values(static_cast<std::size_t>(stored.bytes) / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element_as_f32(bytes.get() + i * size_of(type), type);
  return {stored.header.shape, std::move(values)};
}

}  // namespace diffuse
