#pragma once
// Jobs over ranks that are threads of this process, as the commands run them over MPI.

#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "golden.hpp"
#include "job/job.hpp"
#include "job/result.hpp"
#include "pipeline/answers.hpp"
#include "pipeline/prepare.hpp"
#include "pipeline/split_run.hpp"
#include "transport/loopback.hpp"

namespace diffuse::test {

// A model with its text side; `limits` leave room for every key-value budget that the tests use.
struct Subject {
  explicit Subject(const std::filesystem::path& folder, LoadMode mode = LoadMode::mmap);
  std::vector<PreparedRequest> prepare(const Job& job) const;

  std::filesystem::path folder;
  TestModel model;
  TextSide text;
};

// How a job is run.
struct Setting {
  std::int32_t ranks = 1;
  std::string slices = {};  // empty: balanced
  int threads = 1;          // a rank
  Compute compute = Compute::f32;
  EncoderCopies encoders = EncoderCopies::automatic;
  RunOptions options = {.kv_pages = 4096, .trace = true, .flip = {}};
  LoopbackOptions network = {.timeout = std::chrono::seconds(20), .fate = {}};
};
std::string to_text(const Setting& setting);

// What a test sees and decides while a job runs; all of it on rank 0, but `model`.
struct Hooks {
  std::map<std::uint64_t, RequestResult> kept = {};
  std::map<std::uint64_t, KeptWindows> windows = {};    // of recordings that were under way
  std::function<bool(std::uint64_t tokens)> stop = {};  // asked between steps
  std::function<void(std::uint64_t tokens, LoopbackNetwork& network)> on_token = {};
  std::function<const TestModel&(int rank)> model = {};  // of one rank, where not all see the same folder
};

struct Heard {
  Result result;
  DriverReport report;
  Plan plan;
  std::vector<LoadReport> loads;
  std::string tensors_hash;
  std::map<std::uint64_t, KeptWindows> windows;  // those that were told of, behind the kept ones
  std::vector<std::size_t> reported;             // requests in the order in which they were complete
  std::size_t sequences = 0;                     // that were run
  std::vector<std::string> errors;               // what each rank threw; empty: nothing
};

Heard run(const Subject& subject, const std::vector<PreparedRequest>& prepared, const Setting& setting,
          const Hooks& hooks = {});

// The same, where every rank is expected to come through.
Heard run_well(const Subject& subject, const std::vector<PreparedRequest>& prepared, const Setting& setting,
               const Hooks& hooks = {});

// Empty where two results say the same, bit for bit; else the first difference.
std::string difference(const Result& whole, const Result& split);

Job job_of(std::vector<Request> requests);
Request request_of(std::vector<std::int32_t> ids, Json generate = Json::object());
std::vector<std::int32_t> random_ids(std::mt19937& random, std::int64_t vocab, std::int64_t count);

// Requests of random lengths and of all ways to choose tokens.
Job random_job(std::uint32_t seed, std::int64_t vocab, std::size_t requests, std::int64_t longest);

// Ways to cut and to group, none like the other.
std::vector<Setting> random_settings(std::uint32_t seed, std::int64_t depth, std::size_t count);

// A copy of a model folder whose tensors can be changed.
class ModelCopy {
 public:
  explicit ModelCopy(const std::filesystem::path& from);
  ~ModelCopy();
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // Fills row `row` of a matrix of f32.
  void fill_row(const std::string& tensor, std::int64_t row, float value) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace diffuse::test
