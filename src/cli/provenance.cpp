#include "cli/provenance.hpp"

#include <chrono>
#include <ctime>

#include "job/result_file.hpp"
#include "job/merge.hpp"

namespace diffuse {
namespace {

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Json versions(const Ranks& ranks) {
  return {{"diffuse", DIFFUSE_VERSION},
          {"compiler", DIFFUSE_COMPILER},
          {"mpi", ranks.mpi_version()},
          {"hdf5", hdf5_version()}};
}

Json provenance_of(const std::vector<std::string>& command_line, const Ranks& ranks, const Backend& backend,
                   const Model& model, const Plan& plan, const std::string& job_hash,
                   const std::string& tensors_hash, int threads) {
  return {{"command", command_line},
          {"written", utc_now()},
          {"versions", versions(ranks)},
          {"hosts", ranks.hosts()},
          {"ranks", ranks.size()},
          {"threads", threads},
          {"slices", plan.slices()},
          {"model", model.folder.string()},
          {"notes", model.recipe.notes},
          {"backend", backend.name()},
          {provenance_key::job, job_hash},
          {provenance_key::config, model.config_hash},
          {provenance_key::tensors, tensors_hash},
          {provenance_key::compute, backend.compute() == Compute::bf16 ? "bf16" : "f32"},
          {provenance_key::simd, backend.target()}};
}

Json journal_identity(const Json& from) {
  Json identity = {{"backend", from.at("backend")}};
  for (const auto key : {provenance_key::job, provenance_key::config, provenance_key::tensors,
                         provenance_key::compute, provenance_key::simd}) {
    identity[std::string(key)] = from.at(std::string(key));
  }
  return identity;
}

}  // namespace diffuse
