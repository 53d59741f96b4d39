#pragma once
// Files that appear whole or not at all.

#include <filesystem>

namespace diffuse::job_detail {

// A name beside `target` to write to. commit() fsyncs what was written, renames it to `target` and fsyncs the
// folder; a PartFile that is not committed deletes what was written. Throws missing input where the folder
// does not exist, else I/O.
class PartFile {
 public:
  explicit PartFile(std::filesystem::path target);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::filesystem::path& path() const { return part_; }  // TARGET.part-PID-HOST
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path part_;
  bool committed_ = false;
};

// Makes a rename or a new name in this folder last through a crash of the machine.
void sync_folder_of(const std::filesystem::path& path);

}  // namespace diffuse::job_detail
