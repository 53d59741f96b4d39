#pragma once
// The job file (HDF5): docs/job-files.md is its description.

#include <filesystem>

#include "job/job.hpp"
#include "job/read_limits.hpp"

namespace diffuse {

// Writes beside `path` and renames, both fsync'd: a reader sees the whole file or none. The same job gives
// the same bytes. Throws bad data for a job that cannot be written (an Unusable request, ids that repeat),
// else I/O. Not from two threads at once (HDF5 here is not thread-safe); the same holds for write_result.
void write_job(const std::filesystem::path& path, const Job& job);

// Reads and checks a job file in a child process (see read_child.hpp); `sha256` is filled in. Requests whose
// own content is spoiled come back as Unusable. Throws missing input, bad data where the file cannot be used
// (also when reading it crashes, takes too long or too much memory), I/O where no child can be started.
Job read_job(const std::filesystem::path& path, const ReadLimits& limits = {});

}  // namespace diffuse
