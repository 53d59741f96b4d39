#include "sampler/scheduler_config.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostTrainSteps = 100000;

std::string shown(const Json& value) {
  return visible(utf8_prefix(value.dump(-1, ' ', true, Json::error_handler_t::replace), 120));
}

// Null, false or empty.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

// Read by no class here, or by others than the one that is named: diffusers carries keys along where one
// scheduler is made of another's config, and reads none of them.
constexpr auto kOfOthers = std::to_array<std::string_view>({
    "_class_name",
    "_diffusers_version",
    "_use_default_values",
    // of thresholding and dynamic shifting, which are refused where they are on
    "dynamic_thresholding_ratio",
    "sample_max_value",
    "base_shift",
    "max_shift",
    "base_image_seq_len",
    "max_image_seq_len",
    "time_shift_type",
    // of the classes that this build has
    "beta_start",
    "beta_end",
    "beta_schedule",
    "timestep_spacing",
    "steps_offset",
    "final_sigmas_type",
    "solver_order",
    "prediction_type",
    "use_flow_sigmas",
    "flow_shift",
    "shift",
    "lower_order_final",
    "solver_type",
    "predict_x0",
    "disable_corrector",
    "shift_terminal",
    "algorithm_type",
    "euler_at_final",
    "variance_type",
    "lambda_min_clipped",
    "invert_sigmas",
    "interpolation_type",
    "timestep_type",
    // of DDPM, DDIM and PNDM
    "clip_sample",
    "clip_sample_range",
    "set_alpha_to_one",
    "skip_prk_steps",
    "snr_shift_scale",
});

class Reader {
 public:
  Reader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
    if (!object.is_object()) throw_bad_data(what_ + " is " + shown(object) + ", not an object");
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw_refused("cannot run yet: " + what_ + ": '" + key + "' is " + shown(object_.at(key)) + ": " + why);
  }

  bool flag(const std::string& key, bool otherwise) {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise, std::int64_t least,
                       std::int64_t most) {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    const bool fits = value->is_number_integer() && *value >= least && *value <= most;
    if (!fits) wrong(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value->get<std::int64_t>();
  }
  std::optional<double> number(const std::string& key, double least, double most) {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
    if (!fits) wrong(key, "a number from " + Json(least).dump() + " to " + Json(most).dump());
    return value->get<double>();
  }
  template <typename Value, std::size_t Count>
  Value one_of(const std::string& key, Value otherwise,
               const std::array<std::pair<std::string_view, Value>, Count>& known) {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    for (const auto& [name, meaning] : known) {
      if (*value == name) return meaning;
    }
    std::string names;
    for (const auto& [name, meaning] : known) names += (names.empty() ? "" : ", ") + std::string(name);
    refuse(key, "this build knows " + names);
  }
  std::vector<std::int64_t> integers(const std::string& key) {
    const auto* value = find(key);
    std::vector<std::int64_t> list;
    if (value == nullptr) return list;
    const bool fits = value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& each) {
                        return each.is_number_integer();
                      });
    if (!fits) wrong(key, "a list of whole numbers");
    for (const auto& each : *value) list.push_back(each.get<std::int64_t>());
    return list;
  }

  // A part of the class that this build does not have.
  void need_off(const std::string& key, const std::string& why) {
    const auto* value = find(key);
    if (value != nullptr && !says_nothing(*value)) refuse(key, why);
  }
  const Json* find(const std::string& key) {
    read_.insert(key);
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  void refuse_leftovers() const {
    for (const auto& [key, value] : object_.items()) {
      const bool known = read_.contains(key) || says_nothing(value) ||
                         std::find(kOfOthers.begin(), kOfOthers.end(), key) != kOfOthers.end();
      if (!known) refuse(key, "this build does not know this key of a scheduler");
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const {
    throw_bad_data(what_ + ": '" + key + "' is " + shown(object_.at(key)) + ", not " + wanted);
  }

  const Json& object_;
  std::string what_;
  std::set<std::string, std::less<>> read_;
};

using PredictionName = std::pair<std::string_view, Prediction>;
constexpr std::array kPredictions = {PredictionName{"epsilon", Prediction::noise},
                                     PredictionName{"sample", Prediction::data},
                                     PredictionName{"v_prediction", Prediction::velocity},
                                     PredictionName{"flow_prediction", Prediction::flow}};
constexpr std::array kEulerPredictions = {PredictionName{"epsilon", Prediction::noise},
                                          PredictionName{"sample", Prediction::data},
                                          PredictionName{"original_sample", Prediction::data},
                                          PredictionName{"v_prediction", Prediction::velocity}};
using TimestepName = std::pair<std::string_view, TimestepSpacing>;
constexpr std::array kTimestepSpacings = {TimestepName{"linspace", TimestepSpacing::linspace},
                                          TimestepName{"leading", TimestepSpacing::leading},
                                          TimestepName{"trailing", TimestepSpacing::trailing}};
using BetaName = std::pair<std::string_view, BetaSchedule>;
constexpr std::array kBetas = {BetaName{"linear", BetaSchedule::linear},
                               BetaName{"scaled_linear", BetaSchedule::scaled_linear},
                               BetaName{"squaredcos_cap_v2", BetaSchedule::squared_cosine}};
using SolverName = std::pair<std::string_view, SolverType>;
// Names of other solvers' types stand for the usual one, as in diffusers.
constexpr std::array kUnipcSolvers = {SolverName{"bh1", SolverType::bh1}, SolverName{"bh2", SolverType::bh2},
                                      SolverName{"midpoint", SolverType::bh2},
                                      SolverName{"heun", SolverType::bh2},
                                      SolverName{"logrho", SolverType::bh2}};
constexpr std::array kDpmSolvers = {
    SolverName{"midpoint", SolverType::midpoint}, SolverName{"heun", SolverType::heun},
    SolverName{"logrho", SolverType::midpoint}, SolverName{"bh1", SolverType::midpoint},
    SolverName{"bh2", SolverType::midpoint}};
using EndName = std::pair<std::string_view, bool>;
constexpr std::array kEnds = {EndName{"zero", true}, EndName{"sigma_min", false}};
constexpr std::array kInterpolations = {EndName{"linear", false}, EndName{"log_linear", true}};

class ConfigBuilder {
 public:
  ConfigBuilder(const Json& json, const std::string& what) : reader_(json, what), what_(what) {}

  SchedulerConfig build() {
    config_.kind = kind();
    config_.train_steps = reader_.integer("num_train_timesteps", 1000, 2, kMostTrainSteps);
    refuse_what_is_not_elementwise();
    read_spacing();
    switch (config_.kind) {
      case SchedulerKind::unipc:
        read_unipc();
        break;
      case SchedulerKind::dpm_solver:
        read_dpm_solver();
        break;
      case SchedulerKind::flow_euler:
        read_flow_euler();
        break;
      case SchedulerKind::euler:
        read_euler();
        break;
    }
    reader_.refuse_leftovers();
    return config_;
  }

 private:
  SchedulerKind kind() {
    using Name = std::pair<std::string_view, SchedulerKind>;
    constexpr std::array kKinds = {Name{"UniPCMultistepScheduler", SchedulerKind::unipc},
                                   Name{"DPMSolverMultistepScheduler", SchedulerKind::dpm_solver},
                                   Name{"FlowMatchEulerDiscreteScheduler", SchedulerKind::flow_euler},
                                   Name{"EulerDiscreteScheduler", SchedulerKind::euler}};
    if (reader_.find("_class_name") == nullptr)
      throw_bad_data(what_ + " has no '_class_name', so which scheduler it is cannot be told");
    return reader_.one_of("_class_name", SchedulerKind::unipc, kKinds);
  }

  void refuse_what_is_not_elementwise() {
    reader_.need_off("thresholding", "it needs the whole latent at once, and steps here are elementwise");
    reader_.need_off("solver_p", "a scheduler inside of a scheduler");
    reader_.need_off("stochastic_sampling", "noise that is drawn at every step");
    reader_.need_off("use_dynamic_shifting", "a shift that depends on the picture's size");
    reader_.need_off("use_beta_sigmas", "noise levels by the beta distribution");
    reader_.need_off("use_lu_lambdas", "noise levels by equal steps of log-SNR");
    reader_.need_off("rescale_betas_zero_snr", "betas rescaled to end without signal");
    reader_.need_off("trained_betas", "a table of betas");
  }

  void read_spacing() {
    config_.sigma_min = reader_.number("sigma_min", 1e-12, 1e6);
    config_.sigma_max = reader_.number("sigma_max", 1e-12, 1e6);
    const bool karras = reader_.flag("use_karras_sigmas", false);
    const bool exponential = reader_.flag("use_exponential_sigmas", false);
    if (karras && exponential)
      throw_bad_data(what_ + ": use_karras_sigmas and use_exponential_sigmas are both set; only one can be");
    config_.spacing = karras        ? SigmaSpacing::karras
                      : exponential ? SigmaSpacing::exponential
                                    : SigmaSpacing::given;
  }

  // What the three classes have whose noise levels come from betas.
  void read_betas() {
    config_.beta_start = reader_.number("beta_start", 0, 1).value_or(0.0001);
    config_.beta_end = reader_.number("beta_end", 0, 1).value_or(0.02);
    config_.betas = reader_.one_of("beta_schedule", BetaSchedule::linear, kBetas);
    config_.timesteps = reader_.one_of("timestep_spacing", TimestepSpacing::linspace, kTimestepSpacings);
    config_.steps_offset = reader_.integer("steps_offset", 0, 0, kMostTrainSteps);
    config_.ends_at_zero = reader_.one_of("final_sigmas_type", true, kEnds);
  }

  void read_multistep() {
    read_betas();
    config_.order = reader_.integer("solver_order", 2, 1, std::numeric_limits<std::int32_t>::max());
    if (config_.order > 3) reader_.refuse("solver_order", "this build has the orders 1 to 3");
    config_.prediction = reader_.one_of("prediction_type", Prediction::noise, kPredictions);
    config_.flow_sigmas = reader_.flag("use_flow_sigmas", false);
    config_.shift = reader_.number("flow_shift", 1e-6, 1e6).value_or(1);
    config_.lower_order_final = reader_.flag("lower_order_final", true);
  }

  void read_unipc() {
    read_multistep();
    config_.solver = reader_.one_of("solver_type", SolverType::bh2, kUnipcSolvers);
    config_.of_data = reader_.flag("predict_x0", true);
    config_.uncorrected = reader_.integers("disable_corrector");
    config_.shift_terminal = reader_.number("shift_terminal", 0, 0.999999).value_or(0);
    if (config_.shift_terminal > 0 && !config_.flow_sigmas)
      reader_.refuse("shift_terminal", "it stands for levels of a flow, and use_flow_sigmas is not set");
    if (!config_.of_data && config_.prediction == Prediction::flow)
      reader_.refuse("prediction_type", "with predict_x0 false, where diffusers has no such step either");
  }

  void read_dpm_solver() {
    read_multistep();
    using Name = std::pair<std::string_view, bool>;
    constexpr std::array kAlgorithms = {Name{"dpmsolver++", true}, Name{"deis", true}};
    reader_.one_of("algorithm_type", true, kAlgorithms);
    config_.solver = reader_.one_of("solver_type", SolverType::midpoint, kDpmSolvers);
    config_.euler_at_final = reader_.flag("euler_at_final", false);
    reader_.need_off("variance_type", "predictions that hold a variance as well");
    const auto* least = reader_.find("lambda_min_clipped");
    if (least != nullptr && *least != "-Infinity")
      config_.least_lambda = reader_.number("lambda_min_clipped", -1e6, 1e6);
  }

  void read_flow_euler() {
    config_.prediction = Prediction::flow;
    config_.flow_sigmas = true;
    config_.shift = reader_.number("shift", 1e-6, 1e6).value_or(1);
    config_.shift_terminal = reader_.number("shift_terminal", 0, 0.999999).value_or(0);
    config_.inverted = reader_.flag("invert_sigmas", false);
  }

  void read_euler() {
    read_betas();
    config_.prediction = reader_.one_of("prediction_type", Prediction::noise, kEulerPredictions);
    config_.log_linear = reader_.one_of("interpolation_type", false, kInterpolations);
    using Name = std::pair<std::string_view, bool>;
    constexpr std::array kTypes = {Name{"discrete", true}};
    reader_.one_of("timestep_type", true, kTypes);
  }

  Reader reader_;
  std::string what_;
  SchedulerConfig config_;
};

}  // namespace

SchedulerConfig read_scheduler_config(const Json& config, const std::string& what) {
  return ConfigBuilder(config, what).build();
}

}  // namespace diffuse
