#pragma once
// One difference between two results of the same job: plain data that names where it is and both values, and
// its forms as a sentence and as JSON.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace diffuse {

// What differs, and what `position` and `layer` of the Difference count there (unset where nothing is said).
enum class What : std::uint8_t {
  missing_request,  // the whole result holds it, the split one does not
  extra_request,    // the other way round
  order,            // position: the first place in the job whose request differs, of those that both hold
  status,           // the samples are then not compared
  message,          // bad in both, for different reasons
  seed,
  prompt_tokens,
  sample_count,   // the samples that both hold are compared
  tokens,         // position: index among the generated tokens
  finish,         // why generation ended
  media,          // sizes, or bits of the elements; position: the first that differs
  latent,         // sizes, or bits of the elements; position: the first that differs
  text,           // position: byte where the first differing character starts
  transcript,     // a segment's or a word's text, times or figures; position: the segment
  logprobs,       // of the chosen tokens, bit for bit; position: index among the generated tokens
  top_logprobs,   // ids or bits of the best ones beside it; position: as above
  missing_trace,  // one of the two was not traced, so its layers cannot be compared
  trace_shape,    // other layers or positions; what both hold is compared
  digest,         // position: in prompt and generated tokens; layer: 0 is the front, i is after block i - 1
  sha256,         // of prompt and generated ids, where no other difference of the request explains it
};

std::string_view name_of(What what);                        // its spelling above
std::optional<What> what_from_name(std::string_view name);  // nothing for another name

// All values of one kind that differ in one sample (or request) make one Difference, which names the first.
struct Difference {
  std::string request{};                 // the user's name for it
  std::optional<std::int64_t> sample{};  // unset: it concerns the request as a whole
  What what = What::digest;
  std::optional<std::int64_t> position{};
  std::optional<std::int64_t> layer{};
  std::uint64_t count = 1;  // how many values differ, this one included (always 1 for text)
  std::string whole{};      // both values, for a person; valid UTF-8 without control characters
  std::string split{};

  bool operator==(const Difference&) const = default;
};

// "request "q3", sample 0: digest differs first at position 12, layer 5 (after block 4): …". One line.
std::string sentence(const Difference& difference);

// The place alone: "request "q3", sample 0, position 12, layer 5 (after block 4)".
std::string place(const Difference& difference);

Json to_json(const Difference& difference);

// Inverse of to_json. Throws bad data, with `where` in front, when a member is missing or of another type.
Difference difference_from_json(const Json& value, const std::string& where);

// A string in double quotes, for a message: control characters are escaped and invalid UTF-8 becomes U+FFFD,
// so a stranger's text cannot steer a terminal.
std::string shown_safely(std::string_view text);

}  // namespace diffuse
