#include "checkpoint/open_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

OpenFile::OpenFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto doing = "opening '" + path_.string() + "'";
  // Without O_NONBLOCK, opening a FIFO waits for a writer for ever.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw_errno(doing);
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const int number = errno;
    ::close(descriptor_);
    errno = number;
    if (!known) throw_errno(doing);
    throw_missing(doing + ": not a regular file; put the file itself or a link to it there");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  changed_ = status.st_mtim;
}

OpenFile::~OpenFile() {
  ::close(descriptor_);
}

void OpenFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const auto block = std::min(kBlockBytes, to.size() - done);
    const auto got = ::pread(descriptor_, to.data() + done, block, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("reading '" + path_.string() + "'");
    if (got == 0) {
      throw_io("reading '" + path_.string() + "': it ends at byte " + std::to_string(offset + done) +
               " and had " + std::to_string(size_) + " bytes when it was opened; was it written meanwhile?");
    }
    done += static_cast<std::size_t>(got);
  }
}

std::shared_ptr<const std::byte> OpenFile::read_range(std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})),
      [](std::byte* data) { ::operator delete (data, std::align_val_t{kAlignment}); });
  read(offset, {memory.get(), bytes});
  return memory;
}

std::shared_ptr<const std::byte> OpenFile::map_range(std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  check_unchanged();
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto first = offset / page * page;
  const auto length = static_cast<std::size_t>(offset - first) + bytes;
  void* const map = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor_, static_cast<off_t>(first));
  if (map == MAP_FAILED) {
    throw_errno("mapping " + std::to_string(length) + " bytes of '" + path_.string() +
                "' (--load read needs no map)");
  }
  const std::shared_ptr<const std::byte> owner(
      static_cast<const std::byte*>(map),
      [length](const std::byte* data) { ::munmap(const_cast<std::byte*>(data), length); });
  // Advice only: a kernel or file system that does not take it still reads the right bytes.
  ::madvise(map, length, MADV_SEQUENTIAL);
  ::madvise(map, length, MADV_WILLNEED);
  check_unchanged();
  return {owner, owner.get() + (offset - first)};
}

void OpenFile::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_errno("asking for the size of '" + path_.string() + "'");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size != size_) {
    throw_io("reading '" + path_.string() + "': it has " + std::to_string(size) + " bytes now and had " +
             std::to_string(size_) + " when it was opened; leave the checkpoint alone while it is loaded");
  }
  if (status.st_mtim.tv_sec != changed_.tv_sec || status.st_mtim.tv_nsec != changed_.tv_nsec) {
    throw_io("reading '" + path_.string() +
             "': it was written after it was opened; leave the checkpoint alone while it is loaded");
  }
}

}  // namespace diffuse
