#pragma once
// The reading child's part: values out of opened HDF5 files. Every check of docs/job-files.md is made here;
// the parent only makes sure that what it is handed keeps the rules of the values themselves.

#include "job/h5_input.hpp"
#include "job/job.hpp"
#include "job/result.hpp"

namespace diffuse::job_detail {

// Both throw bad data that names the file and the path in it.
Job job_of(h5::Input& file);
Result result_of(h5::Input& file);

// Throws bad data where two requests have one id.
void check_unique_ids(const Job& job, const std::string& what);

}  // namespace diffuse::job_detail
