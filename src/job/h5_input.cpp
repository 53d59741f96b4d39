#include "job/h5_input.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/size.hpp"
#include "core/utf8.hpp"

namespace diffuse::h5 {
namespace {

constexpr hsize_t kMostNames = 256;
constexpr std::size_t kSlab = 4096;  // variable-length strings that are held twice at a time

struct FreeStrings {  // what HDF5 allocated for one slab
  const Handle& type;
  const Handle& space;
  std::vector<char*>& pointers;
  ~FreeStrings() { H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data()); }
};

std::string unpadded(std::string_view text, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return std::string(text.substr(0, text.find('\0')));
  const char fill = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
  const auto last = text.find_last_not_of(fill);
  return std::string(text.substr(0, last == std::string_view::npos ? 0 : last + 1));
}

}  // namespace

struct Input::Set {
  Handle dataset;
  Handle type;
  H5T_class_t kind;
  std::size_t item;  // bytes of one element in the file's type
  std::uint64_t count;
  bool scalar;
};

Input::Input(const std::filesystem::path& path, std::string what, std::uint64_t data_bytes)
    : what_(std::move(what)), budget_(data_bytes), file_([&] {
        prepare();
        if (H5Fis_hdf5(path.c_str()) <= 0)
          throw_bad_data(what_ + ": not an HDF5 file (`diffuse pack` makes a job file of a spec)");
        const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, what_);
        check(H5Pset_file_locking(access.get(), false, true), what_);
        return Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, what_);
      }()) {}

std::string Input::doing(const std::string& path) const {
  return what_ + ": reading '" + path + "'";
}

void Input::fail(const std::string& path, const std::string& problem) const {
  throw_bad_data(what_ + ": '" + path + "' " + problem);
}

std::vector<std::string> Input::names(const std::string& group) const {
  const Handle opened(H5Gopen2(file_.get(), group.c_str(), H5P_DEFAULT), H5Gclose, doing(group));
  H5G_info_t info{};
  check(H5Gget_info(opened.get(), &info), doing(group));
  if (info.nlinks > kMostNames) fail(group, "holds more names than any file of this program");
  std::vector<std::string> found;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    H5L_info_t link{};
    check(H5Lget_info_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, &link, H5P_DEFAULT),
          doing(group));
    const auto length =
        check(H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT),
              doing(group));
    if (length > 1024) fail(group, "holds a name of more than 1024 bytes");
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    check(H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(),
                             H5P_DEFAULT),
          doing(group));
    name.pop_back();
    if (link.type != H5L_TYPE_HARD)
      fail(name, "is a link to somewhere else; only data in the file itself is read");
    found.push_back(std::move(name));
  }
  return found;
}

std::vector<std::string> Input::attributes(const std::string& path) const {
  const Handle object(H5Oopen(file_.get(), path.c_str(), H5P_DEFAULT), H5Oclose, doing(path));
  H5O_info_t info{};
  check(H5Oget_info2(object.get(), &info, H5O_INFO_NUM_ATTRS), doing(path));
  if (info.num_attrs > kMostNames) fail(path, "holds more attributes than any file of this program");
  std::vector<std::string> found;
  for (hsize_t i = 0; i < info.num_attrs; ++i) {
    const Handle attribute(
        H5Aopen_by_idx(object.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
        doing(path));
    const auto length = check(H5Aget_name(attribute.get(), 0, nullptr), doing(path));
    if (length > 1024) fail(path, "holds an attribute's name of more than 1024 bytes");
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    check(H5Aget_name(attribute.get(), name.size(), name.data()), doing(path));
    name.pop_back();
    found.push_back(std::move(name));
  }
  return found;
}

bool Input::has(const std::string& path) const {
  const auto slash = path.rfind('/');
  if (slash != std::string::npos && !is_group(path.substr(0, slash))) return false;
  const auto present = names(slash == std::string::npos ? "/" : path.substr(0, slash));
  return std::ranges::find(present, slash == std::string::npos ? path : path.substr(slash + 1)) !=
         present.end();
}

bool Input::is_group(const std::string& path) const {
  if (!has(path)) return false;
  const Handle object(H5Oopen(file_.get(), path.c_str(), H5P_DEFAULT), H5Oclose, doing(path));
  return H5Iget_type(object.get()) == H5I_GROUP;
}

std::string Input::text_attribute(const std::string& name) {
  const Handle attribute(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, doing(name));
  const Handle space(H5Aget_space(attribute.get()), H5Sclose, doing(name));
  const Handle type(H5Aget_type(attribute.get()), H5Tclose, doing(name));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_npoints(space.get()) != 1)
    fail(name, "is an attribute that should be one string");
  if (check(H5Tis_variable_str(type.get()), doing(name)) > 0) {
    std::vector<char*> pointers(1, nullptr);
    const FreeStrings free{type, space, pointers};
    check(H5Aread(attribute.get(), type.get(), pointers.data()), doing(name));
    const std::string_view text = pointers[0] == nullptr ? "" : pointers[0];
    take(text.size(), 1, name);
    return repair_utf8(text);
  }
  const std::size_t size = H5Tget_size(type.get());
  take(size, 1, name);
  std::string text(size, '\0');
  check(H5Aread(attribute.get(), type.get(), text.data()), doing(name));
  return repair_utf8(unpadded(text, H5Tget_strpad(type.get())));
}

std::int64_t Input::number_attribute(const std::string& name) {
  const Handle attribute(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, doing(name));
  const Handle space(H5Aget_space(attribute.get()), H5Sclose, doing(name));
  const Handle type(H5Aget_type(attribute.get()), H5Tclose, doing(name));
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Sget_simple_extent_npoints(space.get()) != 1)
    fail(name, "is an attribute that should be one whole number");
  std::int64_t value = 0;
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), doing(name));
  return value;
}

Input::Set Input::open_set(const std::string& path, int most_dimensions) const {
  if (!has(path)) fail(path, "is missing");
  if (is_group(path)) fail(path, "is a group and should be a dataset");
  const std::string act = doing(path);
  Handle dataset(H5Dopen2(file_.get(), path.c_str(), H5P_DEFAULT), H5Dclose, act);
  const Handle properties(H5Dget_create_plist(dataset.get()), H5Pclose, act);
  // Both would have the library open other files, which this file names.
  if (H5Pget_layout(properties.get()) == H5D_VIRTUAL ||
      check(H5Pget_external_count(properties.get()), act) > 0)
    fail(path, "takes its data from another file; only data in the file itself is read");
  Handle type(H5Dget_type(dataset.get()), H5Tclose, act);
  const Handle space(H5Dget_space(dataset.get()), H5Sclose, act);
  const int dimensions = check(H5Sget_simple_extent_ndims(space.get()), act);
  if (dimensions > most_dimensions)
    fail(path, "has " + std::to_string(dimensions) + " dimensions and should have " +
                   (most_dimensions == 1 ? "one" : std::to_string(most_dimensions) + " at most"));
  const auto count = check(H5Sget_simple_extent_npoints(space.get()), act);
  const H5T_class_t kind = H5Tget_class(type.get());
  const std::size_t item = H5Tget_size(type.get());
  if (item == 0) fail(path, "has elements without a size");
  return {std::move(dataset), std::move(type), kind, item, static_cast<std::uint64_t>(count),
          dimensions == 0};
}

void Input::take(std::uint64_t count, std::uint64_t size, const std::string& path) {
  const auto bytes = (CheckedSize(count) * size).value();
  if (bytes > budget_)
    fail(path, "unpacks to more data than a file of this size may hold; store it without compression");
  budget_ -= bytes;
}

template <typename T>
std::vector<T> Input::read_as(const Set& set, const std::string& path) {
  take(set.count, std::max(sizeof(T), set.item), path);
  std::vector<T> values(set.count);
  if (set.count > 0)
    check(H5Dread(set.dataset.get(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
          doing(path));
  return values;
}

std::vector<std::uint64_t> Input::unsigned_numbers(const std::string& path) {
  const Set set = open_set(path);
  if (set.count == 0) return {};
  if (set.kind != H5T_INTEGER || set.item > 8) fail(path, "should hold whole numbers of at most 64 bits");
  if (H5Tget_sign(set.type.get()) == H5T_SGN_NONE) return read_as<std::uint64_t>(set, path);
  // HDF5 would turn a negative number into 0 without a word.
  const auto values = read_as<std::int64_t>(set, path);
  if (std::ranges::any_of(values, [](auto value) { return value < 0; }))
    fail(path, "holds a negative number");
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> Input::signed_numbers(const std::string& path) {
  const Set set = open_set(path);
  if (set.count == 0) return {};
  if (set.kind != H5T_INTEGER || set.item > 8) fail(path, "should hold whole numbers of at most 64 bits");
  // Unsigned numbers beyond the range become the largest one: no meaning here reaches so far.
  return read_as<std::int64_t>(set, path);
}

std::vector<std::int32_t> Input::small_numbers(const std::string& path) {
  const auto values = signed_numbers(path);
  using Limits = std::numeric_limits<std::int32_t>;
  if (std::ranges::any_of(values, [](auto value) { return value < Limits::min() || value > Limits::max(); }))
    fail(path, "holds a number of more than 32 bits");
  return {values.begin(), values.end()};
}

std::vector<std::uint8_t> Input::bytes(const std::string& path) {
  const Set set = open_set(path);
  if (set.count == 0) return {};
  if (set.kind != H5T_INTEGER || set.item != 1 || H5Tget_sign(set.type.get()) != H5T_SGN_NONE)
    fail(path, "should hold unsigned bytes");
  return read_as<std::uint8_t>(set, path);
}

template <typename T>
std::vector<T> Input::reals(const std::string& path) {
  const Set set = open_set(path);
  if (set.count == 0) return {};
  if (set.kind != H5T_FLOAT || set.item > sizeof(T))
    fail(path, "should hold floating-point numbers of at most " + std::to_string(8 * sizeof(T)) + " bits");
  return read_as<T>(set, path);
}
template std::vector<float> Input::reals(const std::string&);
template std::vector<double> Input::reals(const std::string&);

std::vector<std::uint64_t> Input::shape(const std::string& path) const {
  if (!has(path)) fail(path, "is missing");
  if (is_group(path)) fail(path, "is a group and should be a dataset");
  const Handle dataset(H5Dopen2(file_.get(), path.c_str(), H5P_DEFAULT), H5Dclose, doing(path));
  const Handle space(H5Dget_space(dataset.get()), H5Sclose, doing(path));
  const auto dimensions = check(H5Sget_simple_extent_ndims(space.get()), doing(path));
  std::vector<hsize_t> sizes(static_cast<std::size_t>(dimensions));
  check(H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr), doing(path));
  return {sizes.begin(), sizes.end()};
}

std::vector<float> Input::samples(const std::string& path, int most_dimensions) {
  const Set set = open_set(path, most_dimensions);
  if (set.count == 0) return {};
  if (set.kind != H5T_FLOAT || set.item > sizeof(double))
    fail(path,
         "should hold floating-point numbers (of integer PCM divide by full scale, like x / 32768 for 16 "
         "bits)");
  return read_as<float>(set, path);
}

std::vector<std::uint64_t> Input::offsets(const std::string& path, std::uint64_t end) {
  auto values = unsigned_numbers(path);
  if (values.empty()) fail(path, "is empty; it should hold one number more than there are items");
  if (values.front() != 0) fail(path, "does not begin with 0");
  if (!std::ranges::is_sorted(values)) fail(path, "goes back");
  if (values.back() != end)
    fail(path, "ends at " + std::to_string(values.back()) + ", but " + std::to_string(end) + " are there");
  return values;
}

std::vector<std::string> Input::strings(const std::string& path) {
  if (is_group(path)) return packed_strings(path);
  const Set set = open_set(path);
  if (set.count == 0) return {};  // h5py writes an empty list as floating-point numbers
  if (set.kind != H5T_STRING) fail(path, "should hold strings");
  return check(H5Tis_variable_str(set.type.get()), doing(path)) > 0 ? variable_strings(set, path)
                                                                    : fixed_strings(set, path);
}

std::vector<std::string> Input::variable_strings(const Set& set, const std::string& path) {
  const std::string act = doing(path);
  take(set.count, sizeof(char*) + sizeof(std::string), path);
  std::vector<std::string> found;
  found.reserve(set.count);
  const Handle file_space(H5Dget_space(set.dataset.get()), H5Sclose, act);
  while (found.size() < set.count) {
    const hsize_t start = found.size();
    const hsize_t count = std::min<std::uint64_t>(kSlab, set.count - start);
    if (!set.scalar)
      check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), act);
    const Handle slab(H5Screate_simple(1, &count, nullptr), H5Sclose, act);
    std::vector<char*> pointers(count, nullptr);
    const FreeStrings free{set.type, slab, pointers};
    check(H5Dread(set.dataset.get(), set.type.get(), slab.get(), file_space.get(), H5P_DEFAULT,
                  pointers.data()),
          act);
    for (const char* pointer : pointers) {
      const std::string_view text = pointer == nullptr ? "" : pointer;
      take(text.size(), 1, path);
      found.emplace_back(text);
    }
  }
  return found;
}

std::vector<std::string> Input::fixed_strings(const Set& set, const std::string& path) {
  take(set.count, (CheckedSize(set.item) + sizeof(std::string)).value(), path);
  std::string data(set.count * set.item, '\0');
  check(H5Dread(set.dataset.get(), set.type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), doing(path));
  const H5T_str_t padding = H5Tget_strpad(set.type.get());
  std::vector<std::string> found;
  found.reserve(set.count);
  for (std::uint64_t i = 0; i < set.count; ++i)
    found.push_back(unpadded(std::string_view(data).substr(i * set.item, set.item), padding));
  return found;
}

std::vector<std::string> Input::packed_strings(const std::string& path) {
  const auto data = bytes(path + "/data");
  const auto starts = offsets(path + "/offsets", data.size());
  take(starts.size(), sizeof(std::string), path);
  take(data.size(), 1, path);
  std::vector<std::string> found;
  found.reserve(starts.size() - 1);
  for (std::size_t i = 0; i + 1 < starts.size(); ++i)
    found.emplace_back(reinterpret_cast<const char*>(data.data()) + starts[i], starts[i + 1] - starts[i]);
  return found;
}

}  // namespace diffuse::h5
