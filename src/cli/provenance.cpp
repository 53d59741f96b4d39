#include "cli/provenance.hpp"

#include <chrono>
#include <ctime>

#include "job/merge.hpp"
#include "job/result_file.hpp"

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
                   const std::string& tensors_hash, const std::string& codec, int threads) {
  Json provenance = {{"command", command_line},
                     {"written", utc_now()},
                     {"versions", versions(ranks)},
                     {"hosts", ranks.hosts()},
                     {"ranks", ranks.size()},
                     {"threads", threads},
                     {"slices", plan.slices()},
                     {"model", model.folder.string()},
                     {"notes", model.recipe.notes},
                     {provenance_key::kBackend, backend.name()},
                     {"transport", ranks.carried_by()},
                     {provenance_key::kJob, job_hash},
                     {provenance_key::kConfig, model.config_hash},
                     {provenance_key::kTensors, tensors_hash},
                     {provenance_key::kCompute, backend.compute() == Compute::bf16 ? "bf16" : "f32"},
                     {provenance_key::kSimd, backend.target()}};
  if (!codec.empty()) provenance[std::string(provenance_key::kCodec)] = "cpu, " + codec;
  return provenance;
}

Json journal_identity(const Json& from) {
  Json identity = {{"backend", from.at("backend")}};
  for (const auto key : {provenance_key::kJob, provenance_key::kConfig, provenance_key::kTensors,
                         provenance_key::kCompute, provenance_key::kSimd}) {
    identity[std::string(key)] = from.at(std::string(key));
  }
  for (const auto key : {provenance_key::kCodec, provenance_key::kPatches, provenance_key::kTiles}) {
    const std::string name(key);
    if (from.contains(name)) identity[name] = from.at(name);
  }
  return identity;
}

}  // namespace diffuse
