#include "cli/preview_files.hpp"

#include <cstdio>
#include <fstream>
#include <utility>

#include "cli/media_files.hpp"
#include "core/error.hpp"
#include "job/export.hpp"
#include "job/part_file.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& name, std::int64_t step) {
  char number[32];
  std::snprintf(number, sizeof number, ".step-%04lld.png", static_cast<long long>(step));
  return name + number;
}

}  // namespace

fs::path PreviewFiles::folder_of(const fs::path& output) {
  auto folder = output;
  folder += ".previews";
  return folder;
}

PreviewFiles::PreviewFiles(fs::path folder, const std::vector<PreparedPicture>& requests)
    : folder_(std::move(folder)) {
  FileNames names;
  for (const auto& request : requests) {
    auto& own = names_.emplace_back();
    if (!request.problem.empty()) continue;
    for (std::int64_t sample = 0; sample < request.samples; ++sample)
      own.push_back(names.take(request.id, static_cast<std::size_t>(sample),
                               static_cast<std::size_t>(request.samples)));
  }
}

void PreviewFiles::take_away(const std::string& name, std::int64_t step) const {
  const auto start = name + ".step-";
  std::error_code ignored;  // what cannot go is written over, or seen to be old
  for (auto entry = fs::directory_iterator(folder_, ignored); entry != fs::directory_iterator();
       entry.increment(ignored)) {
    const auto file = entry->path().filename().string();
    if (file.starts_with(start) && file >= file_of(name, step)) fs::remove(entry->path(), ignored);
  }
}

void PreviewFiles::write(std::size_t request, std::int64_t sample, std::int64_t step,
                         const MediaArray& frame) {
  std::error_code failed;
  fs::create_directory(folder_, failed);
  if (failed) throw_io("making the folder '" + folder_.string() + "': " + failed.message());
  const auto& name = names_.at(request).at(static_cast<std::size_t>(sample));
  if (begun_.insert(name).second) take_away(name, step);
  const auto png = media_files(frame, {}).front().bytes;
  job_detail::PartFile part(folder_ / file_of(name, step));
  std::ofstream file(part.path(), std::ios::binary);
  file.write(png.data(), static_cast<std::streamsize>(png.size()));
  file.close();
  if (!file) throw_errno("writing '" + part.path().string() + "'");
  part.commit();
}

}  // namespace diffuse
