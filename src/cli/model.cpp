#include "cli/model.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "recipe/build.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const TensorHeaders& headers) {
  std::vector<std::string> names;
  for (const auto& [name, header] : headers) names.push_back(name);
  return names;
}

Json object_of(const fs::path& path) {
  auto json = read_json(path);
  if (!json.is_object()) throw_bad_data("'" + path.string() + "': a config must be a JSON object");
  return json;
}

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json");
}

Verdict judge_with_headers(const Json& config, const TensorHeaders& headers) {
  const auto names = names_of(headers);
  const auto known = known_model_types();
  return judge(config, {.transformer = nullptr, .tensor_names = names, .known_families = known});
}

// A diffusers folder: the verdict alone, for no such pipeline runs in this build.
Examination examine_pipeline(const fs::path& index) {
  Examination examination;
  const auto config = object_of(index);
  const auto transformer_path = index.parent_path() / "transformer" / "config.json";
  std::optional<Json> transformer;
  if (fs::exists(transformer_path)) transformer = object_of(transformer_path);
  examination.verdict =
      judge(config,
            {.transformer = transformer ? &*transformer : nullptr, .tensor_names = {}, .known_families = {}});
  if (fs::is_directory(index.parent_path() / "transformer")) {
    examination.weights = true;
    examination.missing = "iterative refinement is not in this build yet";
  }
  return examination;
}

void build(Examination& examination, const Json& config, const TensorHeaders& headers,
           const std::vector<std::string>& accept) {
  examination.weights = true;
  const auto& verdict = examination.verdict;
  if (verdict.verdict == Outcome::refused) {
    examination.missing = verdict.reason;
    return;
  }
  const auto known = known_model_types();
  const auto type = config.find("model_type");
  const bool reads_known_encoder =
      verdict.shape == Shape::encoder_memory && type != config.end() && type->is_string() &&
      std::find(known.begin(), known.end(), type->get<std::string>()) != known.end();
  if (verdict.shape != Shape::autoregressive && !reads_known_encoder) {
    examination.missing = "models of the shape '" +
                          std::string(verdict.shape ? to_string(*verdict.shape) : "?") +
                          "' are not in this build yet";
    return;
  }
  try {
    examination.recipe = build_recipe(config, headers, {accept});
    if (verdict.depth && *verdict.depth != examination.recipe->depth()) {
      examination.missing = "the verdict counts " + std::to_string(*verdict.depth) +
                            " layers and the recipe " + std::to_string(examination.recipe->depth());
      examination.recipe.reset();
    }
  } catch (const Error& problem) {
    if (problem.code() == ExitCode::internal) throw;
    examination.missing = problem.what();
  }
}

}  // namespace

Examination examine(const fs::path& folder, const std::vector<std::string>& accept) {
  if (!fs::exists(folder))
    throw_missing("opening the model '" + folder.string() + "': no such file or folder");
  if (fs::is_directory(folder) && fs::exists(folder / "model_index.json"))
    return examine_pipeline(folder / "model_index.json");
  if (!fs::is_directory(folder)) {
    if (folder.filename() == "model_index.json") return examine_pipeline(folder);
    return {.verdict = judge_with_headers(object_of(folder), {}), .recipe = {}, .missing = {}};
  }
  if (!has_weights(folder)) {
    const auto checkpoint = Checkpoint::open_config_only(folder);
    return {.verdict = judge_with_headers(checkpoint.config(), {}), .recipe = {}, .missing = {}};
  }
  const auto checkpoint = Checkpoint::open(folder);
  Examination examination{
      .verdict = judge_with_headers(checkpoint.config(), checkpoint.headers()), .recipe = {}, .missing = {}};
  build(examination, checkpoint.config(), checkpoint.headers(), accept);
  return examination;
}

Model open_model(const fs::path& folder, LoadMode load, const std::vector<std::string>& accept) {
  if (fs::is_directory(folder) && fs::exists(folder / "model_index.json")) {
    throw_refused("'" + folder.string() + "': " + examine_pipeline(folder / "model_index.json").missing);
  }
  auto checkpoint = Checkpoint::open(folder, load);
  Examination examination{
      .verdict = judge_with_headers(checkpoint.config(), checkpoint.headers()), .recipe = {}, .missing = {}};
  build(examination, checkpoint.config(), checkpoint.headers(), accept);
  if (!examination.recipe) throw_refused("'" + folder.string() + "': " + examination.missing);
  const auto text = read_file(folder / "config.json", 256U << 20);
  return {folder, std::move(checkpoint), std::move(*examination.recipe),
          sha256_hex(std::as_bytes(std::span(text)))};
}

}  // namespace diffuse
