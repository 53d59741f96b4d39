#include "job/h5.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse::h5 {
namespace {

// The innermost error that HDF5 recorded: the cause, where the others say who was asking.
std::string last_error() {
  std::string text;
  const auto note = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, note, &text);
  std::erase(text, '\n');
  return text.empty() ? "HDF5 gave no reason" : "HDF5 says: " + text;
}

Handle without_times(hid_t kind, const std::string& doing) {
  Handle list(H5Pcreate(kind), H5Pclose, doing);
  check(H5Pset_obj_track_times(list.get(), false), doing);
  return list;
}

Handle string_type(const std::string& doing) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, doing);
  check(H5Tset_size(type.get(), H5T_VARIABLE), doing);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), doing);
  return type;
}

void write_dataset(hid_t parent, const std::string& name, hid_t type, hid_t space, const void* data) {
  const std::string doing = "writing dataset '" + name + "'";
  const Handle properties = without_times(H5P_DATASET_CREATE, doing);
  const Handle set(H5Dcreate2(parent, name.c_str(), type, space, H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                   H5Dclose, doing);
  check(H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), doing);
}

Handle vector_space(std::size_t size, const std::string& doing) {
  const hsize_t extent = size;
  return {H5Screate_simple(1, &extent, nullptr), H5Sclose, doing};
}

std::string without_nul(std::string text) {
  for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;)
    text.replace(at, 1, "\xEF\xBF\xBD");
  return text;
}

}  // namespace

Handle::Handle(hid_t id, Close close_it, const std::string& doing)
    : id_(check(id, doing)), close_(close_it) {}

void Handle::close(const std::string& doing) {
  check(close_(std::exchange(id_, -1)), doing);
}

template <typename T>
T check(T value, const std::string& doing) {
  if (value < 0) throw_io(doing + ": " + last_error());
  return value;
}
template int check(int, const std::string&);
template long check(long, const std::string&);
template long long check(long long, const std::string&);

void prepare() {
  // Every handle has an owner that closes it; at exit nothing is left but a file whose disk was full, and
  // closing that once more ends in a segmentation fault.
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

template <>
hid_t native_type<std::uint8_t>() {
  return H5T_NATIVE_UINT8;
}
template <>
hid_t native_type<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t native_type<std::int64_t>() {
  return H5T_NATIVE_INT64;
}
template <>
hid_t native_type<std::uint64_t>() {
  return H5T_NATIVE_UINT64;
}
template <>
hid_t native_type<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
hid_t native_type<double>() {
  return H5T_NATIVE_DOUBLE;
}

Handle create_file(const std::filesystem::path& path) {
  prepare();
  const std::string doing = "creating '" + path.string() + "'";
  const Handle creation = without_times(H5P_FILE_CREATE, doing);
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, doing);
  check(H5Pset_file_locking(access.get(), false, true), doing);
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, doing};
}

Handle create_group(hid_t parent, const std::string& name) {
  const std::string doing = "creating group '" + name + "'";
  const Handle properties = without_times(H5P_GROUP_CREATE, doing);
  return {H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose, doing};
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  const std::string doing = "writing attribute '" + name + "'";
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, doing);
  const Handle attribute(
      H5Acreate2(object, name.c_str(), H5T_NATIVE_INT64, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
      doing);
  check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), doing);
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const std::string doing = "writing attribute '" + name + "'";
  const Handle type = string_type(doing);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, doing);
  const Handle attribute(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, doing);
  const std::string text = without_nul(value);
  const char* pointer = text.c_str();
  check(H5Awrite(attribute.get(), type.get(), &pointer), doing);
}

template <typename T>
void write_array(hid_t parent, const std::string& name, std::span<const T> values) {
  const Handle space = vector_space(values.size(), "writing dataset '" + name + "'");
  write_dataset(parent, name, native_type<T>(), space.get(), values.data());
}
template void write_array(hid_t, const std::string&, std::span<const std::uint8_t>);
template void write_array(hid_t, const std::string&, std::span<const std::int32_t>);
template void write_array(hid_t, const std::string&, std::span<const std::int64_t>);
template void write_array(hid_t, const std::string&, std::span<const std::uint64_t>);
template void write_array(hid_t, const std::string&, std::span<const float>);
template void write_array(hid_t, const std::string&, std::span<const double>);

void write_string(hid_t parent, const std::string& name, const std::string& value) {
  const std::string doing = "writing dataset '" + name + "'";
  const Handle type = string_type(doing);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, doing);
  const std::string text = without_nul(value);
  const char* pointer = text.c_str();
  write_dataset(parent, name, type.get(), space.get(), &pointer);
}

void write_strings(hid_t parent, const std::string& name, const std::vector<std::string>& values) {
  const std::string doing = "writing dataset '" + name + "'";
  std::vector<std::string> texts;
  std::vector<const char*> pointers;
  for (const auto& value : values) texts.push_back(without_nul(value));
  for (const auto& text : texts) pointers.push_back(text.c_str());
  const Handle type = string_type(doing);
  const Handle space = vector_space(values.size(), doing);
  write_dataset(parent, name, type.get(), space.get(), pointers.data());
}

void write_texts(hid_t parent, const std::string& name, std::span<const std::string_view> texts) {
  std::vector<std::uint64_t> offsets = {0};
  std::string data;
  for (const auto text : texts) {
    data += text;
    offsets.push_back(data.size());
  }
  const Handle group = create_group(parent, name);
  write_array<std::uint64_t>(group.get(), "offsets", offsets);
  write_array<std::uint8_t>(group.get(), "data",
                            {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()});
}

}  // namespace diffuse::h5
