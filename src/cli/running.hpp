#pragma once
// What running jobs of tokens and of pictures have in common: inside of run_job.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/run_job.hpp"

namespace diffuse {

// What of a run is the same whatever it makes.
struct Running {
  Ranks& ranks;
  const Model& model;
  SplitRun& split;
  const RunOptions& options;
  std::vector<std::int64_t> stage_layers;  // of each stage
  const JobEvents& events;
  // The codec's SIMD target: that of the ranks where they compute on CPUs too.
  std::string codec_simd;
  int threads = 0;
  // Where the result comes from; `codec`: what the model's codec computes on, empty where it has none, and
  // its tensors' hashes.
  std::function<Json(const std::string& codec, const std::map<std::string, std::uint64_t>& hashes)>
      provenance;
  // Adds what of `settings` must not change before a run goes on, begins the result, and returns what
  // earlier runs did.
  std::function<EarlierWork(Result& result, Json provenance, const Json& settings)> loaded;
  // To be called before each of the split's runs: has the other ranks follow.
  std::function<void()> next_run;
};

double seconds_since(std::chrono::steady_clock::time_point start);
double a_second(std::uint64_t count, double seconds);
Json ranks_of(const std::vector<StageReport>& stages, const std::vector<LoadReport>& loads,
              double run_seconds);
double busy_share(const std::vector<StageReport>& stages, double seconds);
std::function<void(std::size_t, const RequestResult&)> reporter(const JobEvents& events);

// On rank 0.
JobOutcome run_pictures(const Running& run, const PictureJob& job);

}  // namespace diffuse
