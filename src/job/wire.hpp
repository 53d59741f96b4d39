#pragma once
// Jobs and results as flat bytes: what the reading child hands back and what the journal keeps.
// Little-endian, every list behind its length. Decoding trusts nothing: lengths are held against what is left
// before anything is allocated, and the values are checked as if they came from a file.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "job/job.hpp"
#include "job/result.hpp"

namespace diffuse::wire {

static_assert(std::endian::native == std::endian::little, "the byte order of journals");

class Writer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    append(&value, sizeof value);
  }
  void text(std::string_view value) {
    number<std::uint64_t>(value.size());
    append(value.data(), value.size());
  }
  template <typename T>
  void list(const std::vector<T>& values) {
    static_assert(std::is_arithmetic_v<T>);
    number<std::uint64_t>(values.size());
    append(values.data(), values.size() * sizeof(T));
  }
  void json(const Json& value);

  const std::string& bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  std::string bytes_;
};

// Reads what a Writer wrote. Keeps a view only. Each call throws bad data, beginning with `what`, where the
// bytes end too early.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string what) : left_(bytes), what_(std::move(what)) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text();
  std::vector<std::byte> raw();  // of a text, as it is
  template <typename T>
  std::vector<T> list() {
    const auto bytes = take_items(sizeof(T));
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  Json json();
  // The length of a list whose items take at least `least` bytes each.
  std::size_t count(std::size_t least);
  void expect_end() const;
  const std::string& what() const { return what_; }

 private:
  std::span<const std::byte> take(std::size_t size);
  std::span<const std::byte> take_items(std::size_t size);
  [[noreturn]] void fail() const;

  std::span<const std::byte> left_;
  std::string what_;
};

void write(Writer& out, const Job& job);
void write(Writer& out, const RequestResult& request);
void write(Writer& out, const Result& result);
void write(Writer& out, const TranscriptWindow& window);

Job read_job(Reader& in);
RequestResult read_request_result(Reader& in);
Result read_result(Reader& in);
TranscriptWindow read_window(Reader& in);

// Bytes that show whether they arrived whole: magic, length and digest in front.
std::string sealed(const Writer& payload);
// The payload; empty where anything is missing, added or changed.
std::span<const std::byte> unsealed(std::span<const std::byte> bytes);

}  // namespace diffuse::wire
