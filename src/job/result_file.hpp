#pragma once
// The result file (HDF5): docs/job-files.md is its description.

#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "job/read_limits.hpp"
#include "job/result.hpp"

namespace diffuse {

// As write_job. Throws internal where the values contradict each other (see check_result), I/O where writing
// fails.
void write_result(const std::filesystem::path& path, const Result& result);

// As read_job.
Result read_result(const std::filesystem::path& path, const ReadLimits& limits = {});

// What every result keeps: log-probabilities for each token or for none, `top` of them beside each, a digest
// for each layer and position. Throws an Error of `code` that begins with `what`.
void check_request_result(const RequestResult& request, ExitCode code, const std::string& what);
void check_result(const Result& result, ExitCode code, const std::string& what);

// The HDF5 that this was compiled with, and the one that runs: "1.10.8", or "1.10.8, running 1.12.2".
std::string hdf5_version();

}  // namespace diffuse
