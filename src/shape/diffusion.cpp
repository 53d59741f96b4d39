#include "shape/diffusion.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "shape/config_view.hpp"
#include "shape/sections.hpp"
#include "shape/sentences.hpp"
#include "shape/weight_names.hpp"

namespace diffuse {
namespace {

struct BlockKind {
  std::string_view key;   // says how many
  std::string_view name;  // what its blocks are called in `stacks`
};

// One of the first is in every diffusion transformer; the second kind follows the first in the same pass.
constexpr std::array<BlockKind, 8> kFirstKinds = {{{"num_layers", "transformer_blocks"},
                                                   {"num_mmdit_layers", "joint_transformer_blocks"},
                                                   {"num_visual_blocks", "visual_transformer_blocks"},
                                                   {"num_hidden_layers", "layers"},
                                                   {"n_layers", "layers"},
                                                   {"depth", "blocks"},
                                                   {"dit_depth", "blocks"},
                                                   {"nlayers", "layers"}}};
constexpr std::array<BlockKind, 2> kSecondKinds = {{{"num_single_layers", "single_transformer_blocks"},
                                                    {"num_single_dit_layers", "single_transformer_blocks"}}};
// A length in frames beside plain 2D blocks: each block over space is followed by one over time.
constexpr std::string_view kInterleavedKey = "video_length";
constexpr std::string_view kInterleavedName = "temporal_transformer_blocks";

// Down, middle and up blocks, whatever they are made of.
constexpr std::array<std::string_view, 5> kUNetKeys = {"block_out_channels", "down_block_types",
                                                       "up_block_types", "down_blocks_repeat_mappers",
                                                       "layers_per_block"};
constexpr std::array<std::string_view, 2> kCodecKeys = {"latent_channels", "vq_embed_dim"};
// A switch that says so, or the second text encoder's widths that only stacks with skips between their halves
// have.
constexpr std::array<std::string_view, 2> kSkipSwitches = {"long_skip", "use_long_skip"};
constexpr std::array<std::string_view, 2> kSkipKin = {"text_len_t5", "cross_attention_dim_t5"};

// A pipeline need not call itself one; these are what its model_index.json lists.
constexpr std::array<std::string_view, 4> kUsualComponents = {"transformer", "unet", "vae", "scheduler"};

constexpr std::array<std::string_view, 2> kTransformerNames = {"Transformer", "DiT"};
constexpr std::array<std::string_view, 3> kHelperNames = {"ControlNet", "Adapter", "Autoencoder"};

bool contains_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

bool declares_any(const nlohmann::json& config, std::span<const std::string_view> keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return declared(config, key) != nullptr; });
}

// A component of a model_index.json is [library, class].
std::string component_class(const nlohmann::json& value) {
  return value.is_array() && value.size() == 2 && value[1].is_string() ? value[1].get<std::string>()
                                                                       : std::string();
}

std::string component_library(const nlohmann::json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string() ? value[0].get<std::string>()
                                                                       : std::string();
}

bool is_model_index(const nlohmann::json& config) {
  if (text_of(config, "_class_name").ends_with("Pipeline")) return true;
  return std::ranges::any_of(kUsualComponents, [&](std::string_view name) {
    const nlohmann::json* component = declared(config, name);
    return component != nullptr && !component_class(*component).empty();
  });
}

bool named_u_net(std::string_view class_name) {
  return contains_any(class_name, std::array<std::string_view, 2>{"UNet", "UVit"});
}

bool named_transformer(std::string_view class_name) {
  return contains_any(class_name, kTransformerNames);
}

// Codecs and helpers are no stack that refines, though they may be built of the same blocks.
bool only_helps(const nlohmann::json& config, std::string_view class_name) {
  if (contains_any(class_name, kHelperNames)) return true;
  return declares_any(config, kCodecKeys) && !named_transformer(class_name);
}

Media media_made(std::string_view class_name) {
  const auto says = [&](std::string_view part) { return class_name.find(part) != std::string_view::npos; };
  return {.image = says("2DModel") || says("Image"),
          .video = says("3DModel") || says("Video"),
          .audio = says("Audio") || says("1DModel") || says("Music")};
}

struct Stacks {
  std::vector<std::pair<BlockKind, int64_t>> kinds;
  std::string depth_at;
  std::string problem;
};

// Adds the kind that a key of the table names; false when the key's value cannot be a count.
bool add_kind(const nlohmann::json& config, std::span<const BlockKind> table, Stacks& stacks) {
  for (const BlockKind& kind : table) {
    const nlohmann::json* value = declared(config, kind.key);
    if (value == nullptr) continue;
    const auto count = count_of(*value, 0);
    if (!count) {
      stacks.depth_at = kind.key;
      stacks.problem = std::string(kind.key) + " is " + quoted(*value) +
                       ", which is no whole number from 0 to " + std::to_string(kMaxDepth);
      return false;
    }
    stacks.depth_at += (stacks.depth_at.empty() ? "" : " + ") + std::string(kind.key);
    if (*count > 0) stacks.kinds.emplace_back(kind, *count);
    return true;
  }
  return true;
}

Stacks read_stacks(const nlohmann::json& config) {
  Stacks stacks;
  if (!add_kind(config, kFirstKinds, stacks) || !add_kind(config, kSecondKinds, stacks)) return stacks;
  if (stacks.kinds.empty()) stacks.problem = "no key of the config names the depth of the stack that refines";
  if (stacks.kinds.size() == 1 && declared(config, kInterleavedKey) != nullptr)
    stacks.kinds.emplace_back(BlockKind{kInterleavedKey, kInterleavedName}, stacks.kinds.front().second);
  return stacks;
}

// What the weights say against the config, or "".
std::string mismatch(const Stacks& stacks, std::span<const std::string> names) {
  const bool two_kinds = stacks.kinds.size() > 1 && stacks.kinds[1].first.name.starts_with("single");
  for (const auto& [kind, count] : stacks.kinds) {
    const bool single = kind.name.starts_with("single");
    const auto seen = refining_stack(names, two_kinds, single);
    if (!seen) return no_numbered_layers();
    if (seen->highest + 1 != count)
      return depth_mismatch(std::string(kind.key), count, seen->path, seen->highest);
  }
  return "";
}

Verdict judge_transformer(const nlohmann::json& config, const VerdictInput& input, bool named_by_pipeline) {
  const std::string class_name = text_of(config, "_class_name");
  Verdict verdict;
  verdict.media = media_made(class_name);
  const auto refuse = [&](Refusal refusal, std::string reason) {
    verdict.refusal = refusal;
    verdict.reason = std::move(reason);
    return verdict;
  };
  const bool helps = only_helps(config, class_name);
  if (named_u_net(class_name) || (!helps && declares_any(config, kUNetKeys))) {
    verdict.generates = true;
    verdict.shape = Shape::iterative_refinement;
    return refuse(Refusal::u_net, u_net_sentence(class_name));
  }
  if (helps) return refuse(Refusal::unknown_class, helps_only(class_name));
  if (!named_by_pipeline && !named_transformer(class_name))
    return refuse(Refusal::unknown_class, unknown_refiner(class_name));

  verdict.generates = true;
  verdict.shape = Shape::iterative_refinement;
  const Stacks stacks = read_stacks(config);
  if (stacks.problem.empty()) {
    verdict.depth = 0;
    for (const auto& [kind, count] : stacks.kinds) {
      *verdict.depth += count;
      if (stacks.kinds.size() > 1) verdict.stacks[std::string(kind.name)] = count;
    }
  }
  verdict.depth_at = stacks.depth_at;

  const bool switched =
      std::ranges::any_of(kSkipSwitches, [&](auto key) { return declared_as(config, key, true); });
  const std::string skip_tensor = long_skip_tensor(input.tensor_names);
  if (switched || declares_any(config, kSkipKin) || !skip_tensor.empty())
    return refuse(Refusal::long_skips, long_skips_sentence(class_name, skip_tensor));
  if (!stacks.problem.empty()) return refuse(Refusal::no_depth, no_depth_sentence(stacks.problem));
  if (!input.tensor_names.empty()) {
    const std::string problem = mismatch(stacks, input.tensor_names);
    if (!problem.empty()) return refuse(Refusal::no_depth, no_depth_sentence(problem));
  }
  verdict.verdict = Outcome::runs;
  verdict.refusal = Refusal::none;
  verdict.reason = runs_sentence(verdict, "");
  return verdict;
}

Verdict refused_pipeline(Refusal refusal, std::string reason) {
  Verdict verdict;
  verdict.generates = true;
  verdict.shape = Shape::iterative_refinement;
  verdict.refusal = refusal;
  verdict.reason = std::move(reason);
  return verdict;
}

Verdict judge_pipeline(const nlohmann::json& index, const VerdictInput& input) {
  for (const auto& [name, value] : index.items()) {
    const std::string class_name = component_class(value);
    if (class_name.find("UNet") != std::string::npos && class_name.find("ControlNet") == std::string::npos)
      return refused_pipeline(Refusal::u_net, u_net_sentence(class_name));
  }
  if (const nlohmann::json* pipeline = declared(index, "_class_name");
      pipeline != nullptr && pipeline->is_array())
    return refused_pipeline(Refusal::remote_code, own_pipeline_sentence(quoted(*pipeline)));
  const nlohmann::json* named = declared(index, "transformer");
  const std::string class_name = named == nullptr ? std::string() : component_class(*named);
  if (class_name.empty()) {
    Verdict verdict =
        refused_pipeline(Refusal::unknown_class, no_transformer_sentence(text_of(index, "_class_name")));
    verdict.shape.reset();
    return verdict;
  }
  if (component_library(*named) != "diffusers")
    return refused_pipeline(Refusal::remote_code, own_pipeline_sentence(quoted(*named)));
  if (input.transformer == nullptr)
    return refused_pipeline(Refusal::no_depth,
                            no_depth_sentence("the folder has no transformer/config.json"));
  Verdict verdict = judge_transformer(*input.transformer, input, true);
  if (!verdict.depth_at.empty()) verdict.depth_at = joined("transformer", verdict.depth_at);
  return verdict;
}

}  // namespace

bool is_diffusers_config(const nlohmann::json& config) {
  return declared(config, "_class_name") != nullptr;
}

Verdict judge_diffusers(const nlohmann::json& config, const VerdictInput& input) {
  return is_model_index(config) ? judge_pipeline(config, input) : judge_transformer(config, input, false);
}

}  // namespace diffuse
