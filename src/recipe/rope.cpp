#include "recipe/rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "recipe/dictionary.hpp"

namespace diffuse {
namespace {

constexpr double kMost = 1e12;
constexpr double kMostPositions = 2147483647;

float as_f32(double value) {
  return static_cast<float>(value);
}

// What torch computes for `scalar / tensor`: the reciprocal, rounded, times the scalar.
float divided_by(double scalar, float x) {
  return 1.0F / x * as_f32(scalar);
}

struct Stated {
  ConfigReader* inside = nullptr;  // rope_parameters or rope_scaling; null: neither has anything
  std::string type = "default";
  double theta = 0;
  std::int64_t dim = 0;  // rotated elements of a head
  std::int64_t max_positions = 0;
  std::int64_t original_positions = 0;  // of the training before the context was stretched

  // A number of the scaling that must be there.
  double required(std::string_view name, double least) const {
    const std::array names = {name};
    const auto value = inside->number(names, least, kMost);
    if (!value) throw_bad_data("config.json: rope scaling '" + type + "' needs '" + std::string(name) + "'");
    return *value;
  }
  std::optional<double> optional(std::string_view name, double least, double most) const {
    const std::array names = {name};
    return inside->number(names, least, most);
  }
};

// base ^ (2 i / dim), rounded to f32 where torch rounds.
std::vector<float> powers(double base, std::int64_t dim) {
  std::vector<float> list;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    list.push_back(as_f32(exact::pow(as_f32(base), exponent)));
  }
  return list;
}

std::vector<float> default_frequencies(const Stated& stated) {
  auto list = powers(stated.theta, stated.dim);
  for (auto& value : list) value = 1.0F / value;
  return list;
}

ModelRope default_rope(const Stated& stated) {
  return {.spec = {.frequencies = default_frequencies(stated)}};
}

ModelRope linear_rope(const Stated& stated) {
  const float factor = as_f32(stated.required("factor", 1e-6));
  auto list = default_frequencies(stated);
  for (auto& value : list) value /= factor;
  return {.spec = {.frequencies = std::move(list)}};
}

ModelRope llama3_rope(const Stated& stated) {
  const double factor = stated.required("factor", 1e-6);
  const double low = stated.required("low_freq_factor", 1e-6);
  const double high = stated.required("high_freq_factor", 1e-6);
  if (!(high > low))
    throw_bad_data("config.json: rope scaling 'llama3' needs high_freq_factor over low_freq_factor");
  const auto original = static_cast<double>(stated.original_positions);
  const float longest = as_f32(original / low);
  const float shortest = as_f32(original / high);
  auto list = default_frequencies(stated);
  for (auto& value : list) {
    const float wavelength = divided_by(2 * std::numbers::pi, value);
    const bool is_low = wavelength > longest;
    const bool is_high = wavelength < shortest;
    if (is_low) value /= as_f32(factor);
    if (is_low || is_high) continue;
    const float smooth = (divided_by(original, wavelength) - as_f32(low)) / as_f32(high - low);
    value = (1.0F - smooth) * value / as_f32(factor) + smooth * value;
  }
  return {.spec = {.frequencies = std::move(list)}};
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * exact::log(factor) + 1;
}

ModelRope yarn_rope(const Stated& stated) {
  const auto original = static_cast<double>(stated.original_positions);
  const double factor =
      stated.optional("factor", 1e-6, kMost).value_or(static_cast<double>(stated.max_positions) / original);
  const double mscale = stated.optional("mscale", 0, kMost).value_or(0);
  const double mscale_all = stated.optional("mscale_all_dim", 0, kMost).value_or(0);
  const double inferred = mscale != 0 && mscale_all != 0
                              ? yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
                              : yarn_scale(factor, 1);
  const double attention_factor = stated.optional("attention_factor", 1e-6, kMost).value_or(inferred);
  const double beta_fast = stated.optional("beta_fast", 0, kMost).value_or(0);
  const double beta_slow = stated.optional("beta_slow", 0, kMost).value_or(0);
  const std::array truncate_name = {std::string_view("truncate")};
  const bool truncate = stated.inside->boolean(truncate_name).value_or(true);

  const auto dim = static_cast<double>(stated.dim);
  const auto correction = [&](double rotations) {
    return dim * exact::log(original / (rotations * 2 * std::numbers::pi)) / (2 * exact::log(stated.theta));
  };
  double low = correction(beta_fast != 0 ? beta_fast : 32);
  double high = correction(beta_slow != 0 ? beta_slow : 1);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;

  auto list = powers(stated.theta, stated.dim);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const float extrapolated = 1.0F / list[i];
    const float interpolated = 1.0F / (as_f32(factor) * list[i]);
    const float ramp = std::clamp((static_cast<float>(i) - as_f32(low)) / as_f32(high - low), 0.0F, 1.0F);
    const float kept = 1.0F - ramp;
    list[i] = interpolated * (1.0F - kept) + extrapolated * kept;
  }
  return {.spec = {.frequencies = std::move(list), .attention_factor = as_f32(attention_factor)},
          .max_positions = static_cast<std::int64_t>(std::min(original * factor, kMostPositions))};
}

struct Scaling {
  std::string_view type;
  ModelRope (*make)(const Stated&);  // null: known, and not run yet
  bool needs_original;
  std::string_view reason;
};
constexpr std::array kScalings = {
    Scaling{"default", default_rope, false, {}},
    Scaling{"linear", linear_rope, false, {}},
    Scaling{"llama3", llama3_rope, true, {}},
    Scaling{"yarn", yarn_rope, true, {}},
    Scaling{"dynamic", nullptr, false, "its frequencies depend on the request's length"},
    Scaling{"longrope", nullptr, false, "its frequencies depend on the request's length"},
    Scaling{"su", nullptr, false, "its frequencies depend on the request's length"},
};

// rope_parameters or rope_scaling, for this layer type where they are stated one by one.
ConfigReader* stated_object(ConfigReader& config, std::string_view layer_type) {
  auto* const parameters = config.object("rope_parameters");
  auto* const scaling = config.object("rope_scaling");
  const bool has_parameters = parameters != nullptr && !parameters->json().empty();
  const bool has_scaling = scaling != nullptr && !scaling->json().empty();
  if (has_parameters && has_scaling)
    throw_refused("config.json: states both rope_parameters and rope_scaling; remove the wrong one");
  if (has_scaling) return scaling;
  if (!has_parameters) return nullptr;
  const auto& all = parameters->json();
  const bool nested =
      std::any_of(all.begin(), all.end(), [](const Json& value) { return value.is_object(); });
  if (!nested) return parameters;
  auto* const own = parameters->object(layer_type);
  if (own == nullptr) {
    throw_refused("cannot run yet: config.json states rope_parameters by layer type and none for " +
                  (layer_type.empty() ? "this family's layers" : "'" + std::string(layer_type) + "'"));
  }
  return own;
}

// A value that transformers 4 states beside the scaling and transformers 5 inside; inside goes first.
std::optional<double> inside_or_beside(ConfigReader* inside, ConfigReader& config, Names names, double least,
                                       double most) {
  const auto beside = config.number(names, least, most);
  const auto within = inside != nullptr ? inside->number(names, least, most) : std::nullopt;
  return within ? within : beside;
}

}  // namespace

ModelRope make_rope(ConfigReader& config, std::string_view layer_type, std::int64_t head_dim,
                    std::int64_t max_positions, const RopeDefaults& defaults) {
  Stated stated;
  stated.inside = stated_object(config, layer_type);
  stated.theta =
      inside_or_beside(stated.inside, config, keys::kRopeTheta, 1.001, kMost).value_or(defaults.theta);
  stated.max_positions = max_positions;
  stated.dim = head_dim;
  if (defaults.partial) {
    const auto factor = inside_or_beside(stated.inside, config, keys::kPartialRotary, 1e-6, 1);
    stated.dim =
        static_cast<std::int64_t>(static_cast<double>(head_dim) * factor.value_or(defaults.partial_factor));
  }
  if (stated.dim < 2 || stated.dim % 2 != 0) {
    throw_bad_data("config.json: rotary embedding turns " + std::to_string(stated.dim) + " of " +
                   std::to_string(head_dim) + " elements of a head; it needs a positive even number");
  }
  if (stated.inside != nullptr) stated.type = stated.inside->text(keys::kRopeType).value_or("default");

  const auto* const scaling = std::find_if(kScalings.begin(), kScalings.end(),
                                           [&](const auto& known) { return known.type == stated.type; });
  if (scaling == kScalings.end())
    throw_refused("cannot run yet: rope type " + shown(stated.type) + " is not one that this build knows");
  if (scaling->make == nullptr)
    throw_refused("cannot run yet: rope type '" + stated.type + "': " + std::string(scaling->reason));
  // Transformers gives the value beside the scaling priority; without a scaling it has no effect.
  const auto most = static_cast<std::int64_t>(kMostPositions);
  const auto beside = config.integer(keys::kOriginalPositions, 1, most);
  if (scaling->needs_original) {
    const auto within = stated.inside->integer(keys::kOriginalPositions, 1, most);
    stated.original_positions = beside ? *beside : within.value_or(max_positions);
  }
  return scaling->make(stated);
}

}  // namespace diffuse
