#pragma once
// Whether two results of one job say the same: bit for bit, in job order, without tolerance. Only where their
// provenance names two kinds of device in one compute mode (the CPU and a card, or two kinds of card),
// tokens, log-probabilities and pixels are held against each other as across.hpp says, and digests and sounds
// are not.
//
// Compared: which requests there are and their order, status and message, seed, length of the prompt, hash of
// the ids, and of each sample tokens, text, transcript, finish, media, latents, log-probabilities (their
// bits: a NaN equals itself, zero and minus zero differ) and digests. Not compared: timing, provenance (but
// see `notes`) and format version.
//
// Which digest is named. A fault spreads: from (position p, layer l) to the layers above it, through
// attention to later positions, and through the sampled token to the *front* of position p + 1. So every cell
// depends only on cells of earlier positions, or of the same position and lower layers, and the differing
// cell that is first by position and then by layer has no differing cell among its causes: it is an origin.
// The first by layer and then by position need not be, for the front of a later position differs as soon as a
// token does. This holds for causal stacks; where a block lets a position read later ones, the named layer
// may lie above the origin.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "job/result.hpp"
#include "verify/across.hpp"
#include "verify/difference.hpp"

namespace diffuse {

// How much stood on both sides and was held against each other.
struct Counts {
  std::uint64_t requests = 0;
  std::uint64_t answered = 0;  // of them, done in both
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;   // generated ones
  std::uint64_t digests = 0;  // positions x layers
  std::uint64_t media = 0;    // elements of sounds, pictures and videos, and of latents

  std::uint64_t values() const { return tokens + digests + media; }
  bool operator==(const Counts&) const = default;
};

struct Comparison {
  Counts compared;
  // First what concerns the job (missing and extra requests, order), then by request in the whole result's
  // order and by sample; within a sample, a cause stands before what follows from it.
  std::vector<Difference> differences;
  // What a reader must know beside them: compute modes or SIMD targets that differ (and so explain a
  // difference), hashes that are not recorded, requests or layers about which nothing was learnt.
  std::vector<std::string> notes;
  std::optional<Across> across;  // set where the devices are of two kinds

  bool agrees() const { return differences.empty(); }
  bool identical() const { return agrees() && !across; }  // in every bit
};

// Requests are paired by id, so that one that is missing does not make all later ones differ.
// Throws bad data when a hash of job, config or tensors differs ("these two results answer different jobs"),
// or when a trace or log-probabilities do not have the size that they state.
Comparison compare(const Result& whole, const Result& split);

// One sentence, without a full stop: what was found and over how much.
std::string verdict(const Comparison& comparison);

// {"identical", "agrees", "compared": {…}, "differences": […], "notes": […], "across": null or {…}}, for
// Result::verification.
Json to_json(const Comparison& comparison);

Json to_json(const Counts& counts);
Counts counts_from_json(const Json& value, const std::string& where);  // throws bad data, as `where`

}  // namespace diffuse
