#pragma once
// One regular file, opened once for reading, and ranges of it as bytes: mapped or read.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>

namespace diffuse {

// Closed with the last owner. All members are const and thread-safe.
class OpenFile {
 public:
  // Follows symbolic links; never waits on a FIFO. Throws missing input where there is no regular file, I/O
  // where it cannot be opened.
  explicit OpenFile(std::filesystem::path path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Fills `to` from `offset` on. Throws I/O on failure or where the file ends before.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  // [offset, offset + bytes) in the process's own memory, or as a map of the pages that hold it. The caller
  // has checked the range against size(); `bytes` may be 0, the result is null then.
  std::shared_ptr<const std::byte> read_range(std::uint64_t offset, std::size_t bytes) const;
  std::shared_ptr<const std::byte> map_range(std::uint64_t offset, std::size_t bytes) const;
  // Throws I/O where size or time of change differ from those at opening.
  void check_unchanged() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::timespec changed_{};
};

}  // namespace diffuse
