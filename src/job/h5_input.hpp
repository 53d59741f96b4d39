#pragma once
// Reading a stranger's HDF5 file. For the reading child alone: the library itself may crash on what it finds.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "job/h5.hpp"

namespace diffuse::h5 {

// An open file. Paths are like "text/offsets". Every error is bad data that names the file and the path. What
// is read is counted against a budget before memory is taken for it.
class Input {
 public:
  // `what` names the file in errors: "job file 'x.h5'".
  Input(const std::filesystem::path& path, std::string what, std::uint64_t data_bytes);

  const std::string& what() const { return what_; }

  // Names in a group ("/" is the root), in the order of their bytes. Refuses a group with too many, and links
  // that lead out of it (soft and external ones).
  std::vector<std::string> names(const std::string& group) const;
  std::vector<std::string> attributes(const std::string& path = "/") const;  // names; of a group or a dataset
  bool has(const std::string& path) const;
  bool is_group(const std::string& path) const;

  std::string text_attribute(const std::string& name);
  std::int64_t number_attribute(const std::string& name);

  // One-dimensional datasets, but for samples(). Integers of any width; a value that the asked-for type
  // cannot hold is refused.
  std::vector<std::uint64_t> unsigned_numbers(const std::string& path);
  std::vector<std::int64_t> signed_numbers(const std::string& path);
  std::vector<std::int32_t> small_numbers(const std::string& path);
  std::vector<std::uint8_t> bytes(const std::string& path);  // unsigned 8-bit only
  template <typename T>
  std::vector<T> reals(const std::string& path);

  // Floating-point numbers of any width up to 64 bits, as f32; of several dimensions the last one goes
  // fastest.
  std::vector<float> samples(const std::string& path, int most_dimensions = 1);
  // Sizes of a dataset; none of a single value.
  std::vector<std::uint64_t> shape(const std::string& path) const;

  // N + 1 rising offsets that begin at 0 and end at `end`.
  std::vector<std::uint64_t> offsets(const std::string& path, std::uint64_t end);

  // Strings of variable or fixed length (one dimension, or a single one), or a group of `offsets` and `data`.
  // Not repaired.
  std::vector<std::string> strings(const std::string& path);

  [[noreturn]] void fail(const std::string& path, const std::string& problem) const;

 private:
  struct Set;  // an open dataset that passed the checks

  Set open_set(const std::string& path, int most_dimensions = 1) const;
  void take(std::uint64_t count, std::uint64_t size, const std::string& path);
  template <typename T>
  std::vector<T> read_as(const Set& set, const std::string& path);
  std::vector<std::string> variable_strings(const Set& set, const std::string& path);
  std::vector<std::string> fixed_strings(const Set& set, const std::string& path);
  std::vector<std::string> packed_strings(const std::string& path);
  std::string doing(const std::string& path) const;

  std::string what_;
  std::uint64_t budget_;
  Handle file_;
};

}  // namespace diffuse::h5
