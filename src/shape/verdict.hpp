// The verdict of `diffuse check`: what shape a model's computation has, how deep the stack that answers is,
// and whether Diffuse can run it. It is read off config.json by rules on keys, endings and structure, never
// off a list of models, so a family that nobody has tried gets the same verdict as its kin.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace diffuse {

enum class Outcome { runs, refused };

enum class Refusal {
  none,
  u_net,          // what passes between two points is several tensors of several resolutions
  recurrent,      // a layer keeps running state, which cannot be handed over yet
  encoder_alone,  // nothing to answer
  remote_code,    // only the checkpoint's own Python says how it computes
  long_skips,     // late layers read the output of early ones
  no_depth,       // no key, or no trustworthy one, says how deep the stack is
  unknown_class,  // the class name says neither that it generates nor that it does not
};

enum class Shape { autoregressive, encoder_memory, iterative_refinement };

// What an autoregressive model reads beside text, or what a refinement makes.
struct Media {
  bool image = false;
  bool video = false;
  bool audio = false;

  friend bool operator==(const Media&, const Media&) = default;
};

struct Verdict {
  Outcome verdict = Outcome::refused;
  Refusal refusal = Refusal::unknown_class;
  std::string reason;            // one sentence, for a person
  std::optional<Shape> shape;    // also set on refusals where the config tells it
  std::optional<int64_t> depth;  // layers of the stack that answers; never of an encoder in front of it
  std::string depth_at;  // dotted path of the key that said so ("a + b" where two keys add up), or empty
  bool generates = false;
  Media media;
  bool reads_encoder = false;
  bool recurrent = false;
  // Layers by kind of block; filled only where a diffusion transformer has two kinds.
  std::map<std::string, int64_t> stacks;
};

// What may be handed over beside config.json. Everything is optional, and is only looked at during the call.
struct VerdictInput {
  // transformer/config.json of a diffusers folder, where the config is its model_index.json.
  const nlohmann::json* transformer = nullptr;
  // Names from the headers of the answering stack's weights (of transformer/, for a diffusers folder). Where
  // there are any, the depth is checked against the highest layer index among them, and a mismatch refuses.
  std::span<const std::string> tensor_names = {};
  // `model_type`s whose computation is stated in this build: their `auto_map` is ignored instead of refused.
  std::span<const std::string_view> known_families = {};
};

// Judges a parsed config.json, model_index.json or diffusers transformer config.
// Throws std::invalid_argument when `config` (or `input.transformer`) is not a JSON object; anything else
// that is wrong with the content is a refusal with its reason.
Verdict judge(const nlohmann::json& config, const VerdictInput& input = {});

std::string_view to_string(Outcome outcome);
std::string_view to_string(Refusal refusal);  // "none" for Refusal::none
std::string_view to_string(Shape shape);

// The `--json` form: `refusal`, `shape`, `depth` and `depth_at` are null where there is none, `media` is a
// list, `stacks` is there only where it says something.
nlohmann::json to_json(const Verdict& verdict);

}  // namespace diffuse
