#include "cli/model.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "pipeline/picture_request.hpp"
#include "recipe/build.hpp"
#include "recipe/refinement_recipe.hpp"
#include "text/sentencepiece_folder.hpp"
#include "text/tokenizer.hpp"

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

// The two count independently.
void check_depth(Examination& examination) {
  const auto depth = examination.verdict.depth;
  if (!depth || *depth == examination.recipe->depth()) return;
  examination.missing = "the verdict counts " + std::to_string(*depth) + " layers and the recipe " +
                        std::to_string(examination.recipe->depth());
  examination.recipe.reset();
}

bool is_pipeline(const fs::path& folder) {
  return fs::is_directory(folder) && fs::exists(folder / "model_index.json");
}

// A pipeline of diffusers, from its model_index.json: the verdict. Weights are at hand where its transformer
// is a folder.
Examination judge_pipeline(const fs::path& index) {
  Examination examination;
  const auto config = object_of(index);
  const auto transformer_path = index.parent_path() / kStackComponent / "config.json";
  std::optional<Json> transformer;
  if (fs::exists(transformer_path)) transformer = object_of(transformer_path);
  examination.verdict =
      judge(config,
            {.transformer = transformer ? &*transformer : nullptr, .tensor_names = {}, .known_families = {}});
  examination.weights = fs::is_directory(index.parent_path() / kStackComponent);
  return examination;
}

// Digest of every small file that says how a model computes, reads and writes: of these names, in `folders`.
std::string configs_hash(const fs::path& root, const std::vector<std::string>& folders) {
  constexpr std::array<std::string_view, 13> kConfigs = {"config.json",
                                                         "generation_config.json",
                                                         "model_index.json",
                                                         "scheduler_config.json",
                                                         "tokenizer.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "preprocessor_config.json"};
  constexpr std::uint64_t kLargest = 1U << 30;
  Sha256 sha;
  for (const auto& folder : folders) {
    const auto add = [&](std::string_view name) {
      const auto path = root / folder / name;
      if (!fs::is_regular_file(path)) return;
      sha.update(folder + "/" + std::string(name) + "\n");
      const auto text = read_file(path, kLargest);
      sha.update(sha256_hex(std::as_bytes(std::span(text))));
    };
    std::for_each(kConfigs.begin(), kConfigs.end(), add);
    const auto models = sentencepiece_names();
    std::for_each(models.begin(), models.end(), add);
  }
  return sha.hex_digest();
}

// The components that a rank may read weights of.
Checkpoint open_pipeline(const fs::path& folder, LoadMode load) {
  const std::vector<std::string> components = {kStackComponent, kTextComponent, kCodecComponent};
  for (const auto& component : components)
    if (!fs::is_directory(folder / component))
      throw_missing("opening the pipeline '" + folder.string() + "': its component " + component +
                    "/ is not there");
  return Checkpoint::open_components(folder, components, load);
}

void note_tokenizer(Examination& examination, const fs::path& folder) {
  if (examination.recipe && !Tokenizer::present(folder))
    examination.recipe->notes.emplace_back("there is no tokenizer: jobs of `tokens` run, and texts do not");
}

void build_pipeline(Examination& examination, const Checkpoint& checkpoint,
                    const std::vector<std::string>& accept) {
  examination.recipe =
      build_refinement({checkpoint.config(), checkpoint.component_configs()}, checkpoint.headers(), {accept});
  check_depth(examination);
  if (examination.recipe) PictureSide::open(checkpoint.folder()).check(*examination.recipe);
}

Examination examine_pipeline(const fs::path& index, const std::vector<std::string>& accept) {
  auto examination = judge_pipeline(index);
  if (!examination.weights) return examination;
  if (examination.verdict.verdict == Outcome::refused) {
    examination.missing = examination.verdict.reason;
    return examination;
  }
  try {
    build_pipeline(examination, open_pipeline(index.parent_path(), LoadMode::mmap), accept);
    note_tokenizer(examination, index.parent_path() / "tokenizer");
  } catch (const Error& problem) {
    if (problem.code() == ExitCode::internal) throw;
    examination.missing = problem.what();
  }
  return examination;
}

Model open_pipeline_model(const fs::path& folder, LoadMode load, const std::vector<std::string>& accept) {
  auto examination = judge_pipeline(folder / "model_index.json");
  if (examination.verdict.verdict == Outcome::refused)
    throw_refused("'" + folder.string() + "': " + examination.verdict.reason);
  auto checkpoint = open_pipeline(folder, load);
  try {
    build_pipeline(examination, checkpoint, accept);
  } catch (const Error& problem) {
    throw Error(problem.code(), "'" + folder.string() + "': " + problem.what());
  }
  if (!examination.recipe) throw_refused("'" + folder.string() + "': " + examination.missing);
  const std::vector<std::string> folders = {".",         kStackComponent, kTextComponent, kCodecComponent,
                                            "scheduler", "tokenizer"};
  return {folder, std::move(checkpoint), std::move(*examination.recipe), configs_hash(folder, folders)};
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
    check_depth(examination);
  } catch (const Error& problem) {
    if (problem.code() == ExitCode::internal) throw;
    examination.missing = problem.what();
  }
}

}  // namespace

Examination examine(const fs::path& folder, const std::vector<std::string>& accept) {
  if (!fs::exists(folder))
    throw_missing("opening the model '" + folder.string() + "': no such file or folder");
  if (is_pipeline(folder)) return examine_pipeline(folder / "model_index.json", accept);
  if (!fs::is_directory(folder)) {
    if (folder.filename() == "model_index.json") return examine_pipeline(folder, accept);
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
  note_tokenizer(examination, folder);
  return examination;
}

Model open_model(const fs::path& folder, LoadMode load, const std::vector<std::string>& accept) {
  if (is_pipeline(folder)) return open_pipeline_model(folder, load, accept);
  auto checkpoint = Checkpoint::open(folder, load);
  Examination examination{
      .verdict = judge_with_headers(checkpoint.config(), checkpoint.headers()), .recipe = {}, .missing = {}};
  build(examination, checkpoint.config(), checkpoint.headers(), accept);
  if (!examination.recipe) throw_refused("'" + folder.string() + "': " + examination.missing);
  return {folder, std::move(checkpoint), std::move(*examination.recipe), configs_hash(folder, {"."})};
}

}  // namespace diffuse
