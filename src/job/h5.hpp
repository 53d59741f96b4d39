#pragma once
// HDF5's C interface with owners and errors. This header is for this folder's .cpp files alone.

#include <H5public.h>
#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace diffuse::h5 {

// Owns one HDF5 identifier and closes it by the function of its kind.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  // Throws I/O, "DOING: what HDF5 says", where `id` is that of a failed call.
  Handle(hid_t id, Close close_it, const std::string& doing);
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }

  hid_t get() const { return id_; }
  // Closes now; throws I/O where that fails (for files that were written: closing is when the disk refuses).
  void close(const std::string& doing);

 private:
  hid_t id_;
  Close close_;
};

// Throws I/O, "DOING: what HDF5 says", where a call failed (negative). Returns the value.
template <typename T>
T check(T value, const std::string& doing);

// Before a process's first call: HDF5 neither prints its errors itself nor works at exit. create_file does
// it.
void prepare();

// ---- writing
// -------------------------------------------------------------------------------------------------

template <typename T>
hid_t native_type();

// A file and everything in it without time stamps (the same content gives the same bytes) and without locks
// (not every cluster file system has them; PartFile already keeps writers apart).
Handle create_file(const std::filesystem::path& path);
Handle create_group(hid_t parent, const std::string& name);

void write_attribute(hid_t object, const std::string& name, std::int64_t value);
void write_attribute(hid_t object, const std::string& name, const std::string& value);

// A one-dimensional dataset.
template <typename T>
void write_array(hid_t parent, const std::string& name, std::span<const T> values);
// One string of variable length, no dimension: h5py reads it with f[name][()].
void write_string(hid_t parent, const std::string& name, const std::string& value);
// Variable-length UTF-8, as h5py writes a list. A NUL in a string becomes U+FFFD: the format would cut there.
void write_strings(hid_t parent, const std::string& name, const std::vector<std::string>& values);
// A group NAME of `offsets` u64[N+1] and `data` u8: any bytes, and fast for many.
void write_texts(hid_t parent, const std::string& name, std::span<const std::string_view> texts);

}  // namespace diffuse::h5
