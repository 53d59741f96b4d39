#pragma once
// A model over the ranks of a transport: loads each rank's slice once, then runs lists of sequences through
// it. Every rank makes the object and calls the same functions in the same order; rank 0 drives, the others
// follow.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/log.hpp"
#include "pipeline/driver.hpp"
#include "pipeline/refinement_driver.hpp"
#include "slice/encoder.hpp"
#include "slice/executor.hpp"
#include "slice/plan.hpp"

namespace diffuse {

struct LoadReport {
  std::uint64_t bytes_read = 0;
  double seconds = 0;
};

struct RunOptions {
  std::int64_t chunk = 256;     // most rows of a prefill step
  std::int32_t max_group = 64;  // most sequences of a decode step
  std::int32_t groups = 0;      // 0: the schedule chooses
  std::int64_t kv_pages = 0;    // the budget; see kv_budget
  bool trace = false;
  std::vector<WatchedHead> watched = {};  // for sequences that are watched
  std::optional<FlipBit> flip;            // on the first hand-over, between rank 0 and rank 1
};

class SplitRun {
 public:
  // Collective. Loads this rank's slice and tells rank 0 what was read. References must outlive the object.
  // Throws internal where the ranks do not have the same plan.
  SplitRun(const Recipe& recipe, const Checkpoint& checkpoint, const Plan& plan, Transport& transport,
           Backend& backend, Log& log);
  ~SplitRun();

  // On rank 0: a rank each, and the digest of all tensors (the same for any split); `beside`: of those that
  // the client has read.
  const std::vector<LoadReport>& loads() const { return loads_; }
  std::string tensors_hash(const std::map<std::string, std::uint64_t>& beside = {}) const;

  // Rank 0. All sequences must fit `options.kv_pages`.
  DriverReport run(const std::vector<Sequence>& sequences, const RunOptions& options,
                   const DriverEvents& events);
  // Rank 0, of a stack that refines. All pictures must fit `options.kv_pages`.
  RefinementReport refine(std::vector<Picture> pictures, const RunOptions& options,
                          const RefinementEvents& events);
  // Every other rank, once for each run() or refine().
  void follow();

 private:
  // Travels from rank 0 before each run; the plan's digest guards against ranks that see different files.
  struct Setup {
    std::uint64_t plan = 0;
    std::int64_t max_rows = 0;
    std::int64_t kv_pages = 0;
    std::int64_t encode_rows = 0;
    std::uint64_t watched = 0;  // heads, whose list follows
    std::uint8_t trace = 0;
    std::uint8_t history = 0;  // see RefinementLimits: the most that a picture needs
    std::uint8_t padding[6] = {};
  };
  void exchange_loads(const LoadReport& mine);
  Setup agree(const Setup& mine);
  std::vector<WatchedHead> agree_on_watched(std::vector<WatchedHead> heads, std::uint64_t count);
  void encode(std::int64_t rows);
  RefinementLimits refinement_limits(const Setup& setup) const;
  void follow_refinement(const Setup& setup);
  std::optional<EncoderRunner> make_encoder(std::int64_t rows);

  const Recipe& recipe_;
  const Plan& plan_;
  Transport& transport_;
  Backend& backend_;
  Log& log_;
  SliceWeights weights_;
  std::vector<LoadReport> loads_;
  std::map<std::string, std::uint64_t> hashes_;  // of all ranks' tensors, on rank 0
};

// Pages that every stage of a plan has room for; `bytes` of key-value memory, a rank each.
std::int64_t kv_budget(const Recipe& recipe, const Plan& plan, const Backend& backend,
                       std::span<const std::uint64_t> bytes);

}  // namespace diffuse
