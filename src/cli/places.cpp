#include "cli/places.hpp"

#include <unistd.h>

#include "core/error.hpp"
#include "job/journal.hpp"

namespace diffuse {

void check_place(const std::filesystem::path& file) {
  auto folder = file.parent_path();
  if (folder.empty()) folder = ".";
  const auto doing = "writing '" + file.string() + "'";
  if (!std::filesystem::is_directory(folder))
    throw_missing(doing + ": there is no folder '" + folder.string() + "'");
  if (std::filesystem::is_directory(file)) throw_io(doing + ": a folder has that name");
  auto earlier = file;
  earlier += "_prev";
  if (std::filesystem::is_directory(earlier))
    throw_io(doing + ": what stands there would be kept as '" + earlier.string() +
             "', and a folder has that name");
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_errno(doing);
}

void check_apart(const std::filesystem::path& output, const std::filesystem::path& input) {
  std::error_code failed;
  if (std::filesystem::equivalent(output, input, failed) && !failed)
    throw_usage("writing '" + output.string() + "': that is what is read; give the output another name");
}

std::optional<std::string> keep_earlier(const std::filesystem::path& file) {
  if (!Journal::move_aside(file)) return std::nullopt;
  return "'" + file.string() + "' was there before; it is kept as '" + file.string() + "_prev'";
}

}  // namespace diffuse
