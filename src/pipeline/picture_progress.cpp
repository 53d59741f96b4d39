#include "pipeline/picture_progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/format.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostShown = 4;

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(seconds, 0.0)));
  char text[48];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text;
}

PictureProgress::PictureProgress(const std::vector<Of>& pictures) {
  for (const auto& picture : pictures) pictures_.push_back({.of = picture, .step = picture.first_step});
}

std::string PictureProgress::State::text() const {
  std::string text =
      "request " + of.name + ": step " + std::to_string(step) + " of " + std::to_string(of.steps);
  const auto timed = step - of.first_step - 1;
  if (timed < 1) return text;
  const auto each = (last - first) / static_cast<double>(timed);
  return text + ", " + fixed(each, 2) + " s a step, " +
         clock_text(each * static_cast<double>(of.steps - step)) + " left";
}

std::string PictureProgress::on_step(std::size_t picture, std::int64_t step, double seconds) {
  auto& state = pictures_[picture];
  if (state.step == state.of.first_step) state.first = seconds;
  state.step = step;
  state.last = seconds;
  std::string text;
  std::int64_t shown = 0;
  std::int64_t more = 0;
  std::int64_t done = 0;
  for (const auto& each : pictures_) {
    if (each.step >= each.of.steps) ++done;
    if (!each.under_way()) continue;
    if (shown++ < kMostShown) {
      text += (text.empty() ? "" : " | ") + each.text();
    } else {
      ++more;
    }
  }
  if (text.empty()) text = state.text();
  if (more > 0) text += " | and " + std::to_string(more) + " more";
  if (pictures_.size() > 1)
    text += " | " + std::to_string(done) + " of " + std::to_string(pictures_.size()) + " done";
  return text;
}

}  // namespace diffuse
