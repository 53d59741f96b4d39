#include "job/merge.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::string_view, 7> kMustAgree = {
    provenance_key::kConfig, provenance_key::kTensors, provenance_key::kCompute, provenance_key::kSimd,
    provenance_key::kCodec,  provenance_key::kPatches, provenance_key::kTiles};

const Json* provenance_of(const Part& part, std::string_view key) {
  const auto found = part.result.provenance.find(key);
  return found == part.result.provenance.end() ? nullptr : &*found;
}

void check_agreement(std::span<const Part> parts) {
  for (const auto key : kMustAgree) {
    const Part* first = nullptr;
    for (const auto& part : parts) {
      const Json* value = provenance_of(part, key);
      if (value == nullptr) continue;
      if (first == nullptr) first = &part;
      const Json& expected = *provenance_of(*first, key);
      if (*value != expected)
        throw_bad_data("merging: '" + first->name + "' and '" + part.name + "' differ in " +
                       std::string(key) + ": " + expected.dump() + " and " + value->dump());
    }
  }
}

// Parts of one job, in the order in which their jobs first appear. A part that does not say its job is one
// alone.
std::vector<std::vector<const Part*>> groups_of(std::span<const Part> parts) {
  std::vector<std::vector<const Part*>> groups;
  std::unordered_map<std::string, std::size_t> group_of_job;
  for (const auto& part : parts) {
    const Json* job = provenance_of(part, provenance_key::kJob);
    std::size_t at = groups.size();
    if (job != nullptr && job->is_string())
      at = group_of_job.try_emplace(job->get<std::string>(), at).first->second;
    if (at == groups.size()) groups.emplace_back();
    groups[at].push_back(&part);
  }
  return groups;
}

bool same_answer(const RequestResult& a, const RequestResult& b) {
  return std::ranges::equal(a.samples, b.samples, [](const Sample& x, const Sample& y) {
    return x.tokens == y.tokens && x.text == y.text && x.media == y.media && x.latent == y.latent;
  });
}

// Finished beats bad beats unfinished.
void lay_over(RequestResult& kept, const RequestResult& other, const std::string& kept_from,
              const std::string& from) {
  if (kept.status == Status::done && other.status == Status::done && !same_answer(kept, other))
    throw_bad_data("merging: request '" + kept.id + "' is finished in '" + kept_from + "' and in '" + from +
                   "', with different answers");
  if (other.status < kept.status) kept = other;
}

std::vector<RequestResult> overlaid(const std::vector<const Part*>& group) {
  std::vector<RequestResult> requests;
  std::vector<const Part*> origin;
  std::unordered_map<std::string, std::size_t> place;
  for (const Part* part : group) {
    for (const auto& request : part->result.requests) {
      const auto [found, fresh] = place.try_emplace(request.id, requests.size());
      if (fresh) {
        requests.push_back(request);
        origin.push_back(part);
      } else {
        lay_over(requests[found->second], request, origin[found->second]->name, part->name);
      }
    }
  }
  return requests;
}

bool ids_repeat(const std::vector<std::vector<RequestResult>>& groups) {
  std::unordered_set<std::string_view> seen;
  for (const auto& group : groups)
    for (const auto& request : group)
      if (!seen.insert(request.id).second) return true;
  return false;
}

Json of_parts(std::span<const Part> parts, Json Result::*member) {
  Json list = Json::array();
  for (const auto& part : parts) {
    Json entry = part.result.*member;
    entry["name"] = part.name;
    list.push_back(std::move(entry));
  }
  Json merged = Json::object();
  for (const auto& item : (parts.front().result.*member).items()) {
    const auto& key = item.key();
    const auto& value = item.value();
    const bool shared = std::ranges::all_of(parts, [&](const Part& part) {
      const auto found = (part.result.*member).find(key);
      return found != (part.result.*member).end() && *found == value;
    });
    if (shared) merged[key] = value;
  }
  merged["parts"] = std::move(list);
  return merged;
}

}  // namespace

Result merge(std::span<const Part> parts) {
  if (parts.empty()) throw_usage("merging: no part was named");
  check_agreement(parts);
  const auto groups = groups_of(parts);
  std::vector<std::vector<RequestResult>> answers;
  for (const auto& group : groups) answers.push_back(overlaid(group));
  const bool qualify = ids_repeat(answers);
  Result merged;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (auto& request : answers[i]) {
      if (qualify) request.id = groups[i].front()->name + "/" + request.id;
      merged.requests.push_back(std::move(request));
    }
  }
  merged.timing = of_parts(parts, &Result::timing);
  merged.provenance = of_parts(parts, &Result::provenance);
  return merged;
}

}  // namespace diffuse
