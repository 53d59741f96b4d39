#pragma once
// --max-error: which patches a job's own model allows, found by measuring.

#include <optional>

#include "cli/running.hpp"
#include "pipeline/picture_maker.hpp"

namespace diffuse {

// For the provenance and back: patches, whole steps and how keys and values are carried on. The latter throws
// bad data where `value` is none.
Json to_json(const PatchFlags& patches);
PatchFlags patch_flags_of(const Json& value);

// On rank 0. Runs a request of the job (that with the fewest steps; smaller, where it is large) whole and in
// some of the ways that next_to_measure() names, and compares the frames. Says what it does, what it has
// chosen and what speed-up is left by the schedule's simulation. Whole pictures where streams fill the
// stages, where nothing measured is within the budget, or where patches have no room in memory; nothing where
// the run was stopped meanwhile. The same job, model and ranks give the same choice.
std::optional<PatchFlags> calibrate(const Running& run, const PictureJob& job, PictureMaker& maker);

}  // namespace diffuse
