#include "verify/patched.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "verify/json_fields.hpp"
#include "verify/report.hpp"

namespace diffuse {
namespace {

const MediaArray& pixels_of(const Sample& sample, const std::string& what) {
  if (!sample.media || sample.media->element != MediaElement::u8)
    throw_bad_data(what + " is no picture, and patches are of pictures");
  return *sample.media;
}

std::string psnr(const PixelError& error) {
  if (error.pixels == 0) return "nothing compared";
  return std::isinf(error.psnr) ? "the same" : decimal(error.psnr, 1) + " dB";
}

Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

}  // namespace

PixelError pixel_error(const Result& whole, const Result& patched) {
  if (whole.requests.size() != patched.requests.size())
    throw_bad_data("the whole run and the patched one have other requests");
  PixelDifference difference;
  for (std::size_t request = 0; request < whole.requests.size(); ++request) {
    const auto& a = whole.requests[request];
    const auto& b = patched.requests[request];
    const auto what = "request '" + a.id + "'";
    if (a.samples.size() != b.samples.size())
      throw_bad_data(what + " has " + std::to_string(a.samples.size()) + " samples whole and " +
                     std::to_string(b.samples.size()) + " patched");
    for (std::size_t sample = 0; sample < a.samples.size(); ++sample) {
      const auto& left = pixels_of(a.samples[sample], what).bytes;
      const auto& right = pixels_of(b.samples[sample], what).bytes;
      if (left.size() != right.size()) throw_bad_data(what + " has another size whole than patched");
      difference.add(left, right);
    }
  }
  return difference.error();
}

Json to_json(const PatchedRow& row) {
  return {{"ranks", row.ranks},
          {"patches", row.patches},
          {"settings", row.settings},
          {"mean", row.error.mean},
          {"largest", row.error.largest},
          {"psnr", finite_or_null(row.error.psnr)},
          {"pixels", row.error.pixels},
          {"seconds", finite_or_null(row.seconds)},
          {"busy", finite_or_null(row.busy)}};
}

PatchedRow patched_row_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  PatchedRow row{.ranks = fields.integer("ranks"),
                 .patches = fields.integer("patches"),
                 .settings = fields.text("settings"),
                 .error = {.mean = fields.number("mean"),
                           .largest = fields.number("largest"),
                           .psnr = fields.number("psnr"),
                           .pixels = fields.count("pixels")},
                 .seconds = fields.number("seconds"),
                 .busy = fields.number("busy")};
  // What is infinite has no number in JSON.
  if (std::isnan(row.error.psnr)) row.error.psnr = std::numeric_limits<double>::infinity();
  return row;
}

std::string patched_section(const std::vector<PatchedRow>& rows, double whole_seconds) {
  std::string text =
      "\n## Patches\n\nPixels against those of the whole run, in 1/255 of their range.\n\n"
      "| ranks | patches | steps | mean | largest | PSNR | seconds | speed-up | busy |\n"
      "|--:|--:|---|--:|--:|--:|--:|--:|--:|\n";
  for (const auto& row : rows) {
    text += "| " + std::to_string(row.ranks) + " | " + std::to_string(row.patches) + " | " +
            escaped_markdown(row.settings) + " | " + decimal(row.error.mean, 4) + " | " +
            decimal(row.error.largest, 0) + " | " + psnr(row.error) + " | " + decimal(row.seconds, 2) +
            " | " + decimal(row.seconds > 0 ? whole_seconds / row.seconds : 0, 2) + " | " +
            decimal(100 * row.busy, 0) + " % |\n";
  }
  return text;
}

}  // namespace diffuse
