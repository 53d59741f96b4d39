#include "job/kept_steps.hpp"

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "job/part_file.hpp"

namespace diffuse {
namespace {

constexpr std::uint64_t kMagic = 0x3170656b65666964ULL;  // "difekep1"
constexpr std::uint64_t kLargestFile = 1ULL << 36;

struct KeptHead {
  std::uint64_t magic = kMagic;
  std::uint64_t identity = 0;
  std::int64_t step = 0;
  std::uint64_t rows = 0;     // elements
  std::uint64_t sampler = 0;  // bytes
  std::uint64_t digest = 0;   // of what follows
};

std::uint64_t digest_of(const KeptHead& head, std::span<const std::byte> body) {
  const auto numbers = {head.identity, static_cast<std::uint64_t>(head.step), head.rows, head.sampler};
  std::uint64_t seed = 0;
  for (const auto number : numbers) seed = digest64(std::as_bytes(std::span(&number, 1)), seed);
  return digest64(body, seed);
}

}  // namespace

std::filesystem::path KeptSteps::folder_of(const std::filesystem::path& output) {
  auto folder = output;
  folder += ".kept";
  return folder;
}

KeptSteps::KeptSteps(std::filesystem::path output, std::uint64_t identity)
    : folder_(folder_of(output)), identity_(identity) {}

std::filesystem::path KeptSteps::file_of(std::uint64_t request, std::int64_t sample) const {
  return folder_ / (std::to_string(request) + "-" + std::to_string(sample));
}

void KeptSteps::keep(std::uint64_t request, std::int64_t sample, const KeptStep& step) const {
  std::error_code failed;
  std::filesystem::create_directory(folder_, failed);
  if (failed) throw_io("making the folder '" + folder_.string() + "': " + failed.message());
  std::string body(reinterpret_cast<const char*>(step.rows.data()), step.rows.size() * sizeof(float));
  body.append(reinterpret_cast<const char*>(step.sampler.data()), step.sampler.size());
  KeptHead head{
      .identity = identity_, .step = step.step, .rows = step.rows.size(), .sampler = step.sampler.size()};
  head.digest = digest_of(head, std::as_bytes(std::span(body)));
  job_detail::PartFile part(file_of(request, sample));
  std::ofstream file(part.path(), std::ios::binary);
  file.write(reinterpret_cast<const char*>(&head), sizeof head);
  file.write(body.data(), static_cast<std::streamsize>(body.size()));
  file.close();
  if (!file) throw_errno("writing '" + part.path().string() + "'");
  part.commit();
}

std::optional<KeptStep> KeptSteps::find(std::uint64_t request, std::int64_t sample) const {
  const auto path = file_of(request, sample);
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  const auto text = read_file(path, kLargestFile);
  KeptHead head;
  if (text.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, text.data(), sizeof head);
  const auto body = std::as_bytes(std::span(text)).subspan(sizeof head);
  const bool sized = head.rows <= body.size() / sizeof(float) &&
                     head.sampler == body.size() - static_cast<std::size_t>(head.rows) * sizeof(float);
  if (head.magic != kMagic || head.identity != identity_ || !sized || head.digest != digest_of(head, body))
    return std::nullopt;
  KeptStep step;
  step.step = head.step;
  step.rows.resize(static_cast<std::size_t>(head.rows));
  std::memcpy(step.rows.data(), body.data(), step.rows.size() * sizeof(float));
  const auto rest = body.subspan(step.rows.size() * sizeof(float));
  step.sampler.assign(rest.begin(), rest.end());
  return step;
}

void KeptSteps::drop(std::uint64_t request, std::int64_t sample) const {
  std::error_code ignored;  // what is left is found to be another run's, or dropped with the folder
  std::filesystem::remove(file_of(request, sample), ignored);
}

void KeptSteps::drop_all() const {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace diffuse
