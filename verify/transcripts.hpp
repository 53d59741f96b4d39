#pragma once
// Two transcripts of one recording held against each other: texts, languages, times, probabilities, tokens
// and words of every segment. Numbers are equal where their bits are (NaN equals NaN).

#include <optional>

#include "core/transcript.hpp"
#include "verify/difference.hpp"

namespace diffuse {

// Nothing where they are the same, both being absent included. The difference's position is the segment that
// differs first, unset where the transcript as a whole does; its count is of values, those that one side
// lacks among them. Request and sample are left to the caller.
std::optional<Difference> transcript_difference(const std::optional<Transcript>& whole,
                                                const std::optional<Transcript>& split);

}  // namespace diffuse
