#include "job/part_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "job/fd.hpp"

namespace diffuse::job_detail {
namespace {

// Two hosts that share a file system may have the same process ids.
std::string part_suffix() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return ".part-" + std::to_string(getpid()) + "-" + std::string(host.data()).substr(0, 32);
}

}  // namespace

PartFile::PartFile(std::filesystem::path target) : target_(std::move(target)), part_(target_) {
  part_ += part_suffix();
  const auto folder = target_.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw_missing("writing '" + target_.string() + "': there is no folder '" + folder.string() + "'");
  if (std::filesystem::is_directory(target_))
    throw_io("writing '" + target_.string() + "': a folder has that name");
}

PartFile::~PartFile() {
  if (!committed_) unlink(part_.c_str());
}

void PartFile::commit() {
  const Fd file(open(part_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw_errno("opening '" + part_.string() + "' again");
  if (fsync(file.get()) != 0) throw_errno("flushing '" + part_.string() + "' to disk");
  if (rename(part_.c_str(), target_.c_str()) != 0)
    throw_errno("renaming '" + part_.string() + "' to '" + target_.string() + "'");
  committed_ = true;
  sync_folder_of(target_);
}

void sync_folder_of(const std::filesystem::path& path) {
  auto folder = path.parent_path();
  if (folder.empty()) folder = ".";
  const Fd file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) throw_errno("opening folder '" + folder.string() + "'");
  // Some network file systems cannot fsync a folder, and say so with EINVAL: their renames need none.
  if (fsync(file.get()) != 0 && errno != EINVAL)
    throw_errno("flushing folder '" + folder.string() + "' to disk");
}

}  // namespace diffuse::job_detail
