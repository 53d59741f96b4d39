#pragma once
// What patches change: a run whose pictures were cut into patches held against the whole run, as distances of
// pixels. The one place where splitting is allowed to change an answer, so it is measured and reported.

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.hpp"
#include "job/result.hpp"
#include "verify/pixels.hpp"

namespace diffuse {

// Over all pixels of all samples that both runs have. Throws bad data where the two do not have the same
// requests with pictures of the same sizes.
PixelError pixel_error(const Result& whole, const Result& patched);

struct PatchedRow {
  std::int64_t ranks = 1;
  std::int64_t patches = 1;
  std::string settings;  // which steps are whole, and what stands for what a step has not reached
  PixelError error;
  double seconds = 0;
  double busy = 0;

  bool operator==(const PatchedRow&) const = default;
};

Json to_json(const PatchedRow& row);
PatchedRow patched_row_from_json(const Json& value, const std::string& where);  // throws bad data
// A section with a table, a row a run; `whole_seconds` of the reference.
std::string patched_section(const std::vector<PatchedRow>& rows, double whole_seconds);

}  // namespace diffuse
