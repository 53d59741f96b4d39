#include "pipeline/previews.hpp"

#include <utility>

namespace diffuse {

std::vector<float> heading_for(std::span<const float> before, std::span<const float> behind, float from,
                               float to) {
  const float ahead = to / (from - to);
  std::vector<float> data(behind.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = behind[i] + ahead * (behind[i] - before[i]);
  return data;
}

Previews::Previews(std::int64_t every, std::span<const Picture> pictures) : every_(every) {
  for (const auto& picture : pictures) {
    auto& of = pictures_.emplace_back();
    of.scheduler = picture.scheduler;
    if (due(picture.first_step + 1)) of.before = picture.rows;
  }
}

std::optional<std::vector<float>> Previews::on_step(std::size_t picture, const SteppedPicture& stepped) {
  auto& of = pictures_[picture];
  const auto before = std::exchange(of.before, {});
  if (due(stepped.step + 1)) of.before.assign(stepped.rows.begin(), stepped.rows.end());
  const auto steps = static_cast<std::int64_t>(of.scheduler->steps());
  if (!due(stepped.step) || stepped.step >= steps) return std::nullopt;
  const auto at = static_cast<std::size_t>(stepped.step);
  const auto& sigmas = of.scheduler->sigmas();
  if (!of.scheduler->flow()) return std::vector<float>(stepped.rows.begin(), stepped.rows.end());
  return heading_for(before, stepped.rows, sigmas[at - 1], sigmas[at]);
}

}  // namespace diffuse
