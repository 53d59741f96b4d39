#include "recipe/refinement_recipe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "recipe/block_builder.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/leftovers.hpp"
#include "recipe/text_encoder_recipe.hpp"
#include "recipe/video_codec_recipe.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostWidth = 1 << 24;
constexpr std::int64_t kMostAxis = 1 << 16;
constexpr std::int64_t kMostPatch = 64;

// What neither the configs nor the tensors' names say, a row a class of pipelines; and what their
// configuration classes have where a config is silent.
struct RefinementFacts {
  std::string_view pipeline;
  std::string_view stack;  // class of its transformer
  std::string_view text;   // of its text encoder
  std::string_view codec;
  std::int64_t text_rows = 0;
  PictureDefaults defaults = {};  // of the pipeline's call; the rate is its documentation's
  double rope_theta = 10000;
  double time_base = 10000;  // of the sinusoids' wavelengths
  Facts blocks = {};
};

// Read from diffusers 0.42, models/transformers/transformer_….py and pipelines/….
constexpr std::array kRefinements = {
    RefinementFacts{
        .pipeline = "WanPipeline",
        .stack = "WanTransformer3DModel",
        .text = "UMT5EncoderModel",
        .codec = "AutoencoderKLWan",
        .text_rows = 512,
        .defaults = {.steps = 50, .guidance = 5, .height = 480, .width = 832, .frames = 81, .rate = 16},
        .blocks =
            {
                .activation = "gelu_pytorch_tanh",
                .norm = NormKind::layer,
                .norm_bias = Presence::always,
                .norm_place = NormPlace::modulated,
                .qkv_bias = {.presence = Presence::always},
                .attention_output_bias = {.presence = Presence::always},
                .mlp_bias = {.presence = Presence::always},
                .query_key_norm = Presence::always,
                .query_key_norm_is_rms = true,
            },
    },
};

// "transformer_2": ["diffusers", "WanTransformer3DModel"] -> its class; empty where there is none.
std::string class_of(const Json& index, std::string_view component) {
  const auto found = index.find(component);
  if (found == index.end() || !found->is_array() || found->size() != 2 || !found->at(1).is_string())
    return "";
  return found->at(1).get<std::string>();
}

std::string text_at(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const RefinementFacts& facts_for(const Json& index) {
  const auto pipeline = text_at(index, "_class_name");
  const auto stack = class_of(index, kStackComponent);
  const auto* const row = std::find_if(kRefinements.begin(), kRefinements.end(), [&](const auto& facts) {
    return facts.pipeline == pipeline && facts.stack == stack;
  });
  if (row == kRefinements.end())
    throw_refused("cannot run yet: this build has no facts about a " + shown(pipeline) + " with a " +
                  shown(stack));
  return *row;
}

void refuse_second_stack(const Json& index) {
  const auto second = class_of(index, "transformer_2");
  if (!second.empty())
    throw_refused("cannot run yet: it has two stacks, 'transformer' for much noise and 'transformer_2' (" +
                  second + ") for little; this build runs pipelines of one");
  const auto says = [&](std::string_view key) {
    const auto found = index.find(key);
    return found != index.end() && !says_nothing(*found);
  };
  if (says("boundary_ratio"))
    throw_refused("cannot run yet: 'boundary_ratio' in model_index.json hands over to a second stack");
  if (says("expand_timesteps"))
    throw_refused(
        "cannot run yet: 'expand_timesteps' in model_index.json gives each token a time of its own");
}

// Of the pipeline itself; components have configs of their own.
void check_index(const Json& index, const RecipeOptions& options, Recipe& recipe) {
  refuse_second_stack(index);
  for (const auto& [key, value] : index.items()) {
    if (key.starts_with("_") || value.is_array() || says_nothing(value)) continue;
    if (std::find(options.accept.begin(), options.accept.end(), key) != options.accept.end()) {
      recipe.accepted.push_back(key);
      recipe.notes.push_back("model_index.json's " + shown(key) + " = " + shown(value) +
                             " is not read, as accepted");
    } else {
      throw_refused("cannot run yet: model_index.json has " + shown(key) + " = " + shown(value) +
                    ", which this build does not know; name it by --accept " + key +
                    " if it changes nothing");
    }
  }
}

std::string named(std::string_view name) {
  return std::string(kStackComponent) + "." + std::string(name);
}

class RefinementBuilder {
 public:
  RefinementBuilder(ConfigReader& config, const RefinementFacts& facts, TensorBook& book, Recipe& recipe)
      : config_(config),
        facts_(facts),
        book_(book),
        recipe_(recipe),
        layers_(named(names::kRefiningLayers)),
        model_(read_model()),
        blocks_(book, facts.blocks, model_, layers_) {}

  void build() {
    recipe_.hidden = model_.hidden;
    auto& made = recipe_.refinement.emplace();
    made.channels = config_.integer(keys::kLatentChannels, 1, kMostWidth).value_or(16);
    made.out_channels = config_.integer(keys::kPredictedChannels, 1, kMostWidth).value_or(made.channels);
    made.patch = patch_size();
    made.most_patches.fill(config_.integer(keys::kMostPatches, 1, kMostAxis).value_or(1024));
    made.text_rows = facts_.text_rows;
    made.defaults = facts_.defaults;
    made.time = time_embedding();
    made.front = patch_embedding(made);
    recipe_.ropes = {grid_rope()};
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer)
      recipe_.blocks.push_back(blocks_.block(static_cast<std::int64_t>(layer)));
    made.norm = {.kind = NormKind::layer, .weight = {}, .bias = {}, .eps = model_.norm_eps};
    const auto table = named(names::kModulation);
    book_.take(table, {1, 2, model_.hidden});
    made.table = matrix_rows(table, 0, 2, model_.hidden);
    made.back = projection(named(names::kRefinedOutput), made.outputs(), model_.hidden);
  }

  // Two products behind the text encoder, from its width to the stack's.
  void project_text(Encoder& encoder) {
    const auto width = config_.integer(keys::kTextWidth, 1, kMostWidth).value_or(4096);
    if (width != encoder.width)
      throw_bad_data("the stack reads texts of width " + std::to_string(width) +
                     " and its text encoder makes rows of " + std::to_string(encoder.width) +
                     "; the two are not of one checkpoint");
    encoder.projections = {projection(named(names::kTextFirst), model_.hidden, width, Activation::gelu_tanh),
                           projection(named(names::kTextSecond), model_.hidden, model_.hidden)};
    encoder.hidden = model_.hidden;
  }

 private:
  ModelConfig read_model() {
    const auto depth = layers_of(book_.headers(), layers_);
    const auto stated = config_.integer(keys::kRefiningDepth, 1, kMostWidth);
    if (stated && *stated != depth)
      throw_refused("transformer/config.json states " + std::to_string(*stated) +
                    " layers and the weights have " + std::to_string(depth) +
                    "; the two are not of one checkpoint");
    ModelConfig model;
    model.heads = required_size(config_, keys::kRefiningHeads);
    model.kv_heads = model.heads;
    model.head_dim = required_size(config_, keys::kRefiningHeadDim);
    if (model.heads > kMostWidth || model.head_dim > kMostWidth / model.heads || model.head_dim % 2 != 0)
      throw_bad_data("transformer/config.json: " + std::to_string(model.heads) + " heads of " +
                     std::to_string(model.head_dim) + " elements, which must be even and not as many");
    model.hidden = model.heads * model.head_dim;
    model.inner = required_size(config_, keys::kRefiningInner);
    model.memory_width = model.hidden;
    model.norm_eps = static_cast<float>(config_.number(keys::kRefiningEps, 0, 1).value_or(1e-6));
    model.activation = activation_named(std::string(facts_.blocks.activation));
    model.gated = false;
    model.causal = false;
    model.score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)));
    model.cross_norm = config_.boolean(keys::kCrossNorm).value_or(true);
    const auto norm = config_.text(keys::kQueryKeyNorm).value_or("rms_norm_across_heads");
    if (norm != "rms_norm_across_heads")
      throw_refused("cannot run yet: 'qk_norm' in transformer/config.json is " + shown(norm) +
                    ", not \"rms_norm_across_heads\"");
    model.qkv_bias = model.key_bias = facts_.blocks.qkv_bias.presence;
    model.attention_output_bias = facts_.blocks.attention_output_bias.presence;
    model.mlp_bias = facts_.blocks.mlp_bias.presence;
    model.layers.assign(static_cast<std::size_t>(depth), LayerConfig{.rope = 0});
    return model;
  }

  PatchSize patch_size() {
    config_.mark_read(keys::kPatchSize);
    const auto& json = config_.json();
    const auto found = json.find(keys::kPatchSize);
    if (found == json.end() || found->is_null()) return {.frames = 1, .height = 2, .width = 2};
    const bool fits = found->is_array() && found->size() == kAxes &&
                      std::all_of(found->begin(), found->end(), [](const Json& size) {
                        return size.is_number_integer() && size.get<std::int64_t>() >= 1 &&
                               size.get<std::int64_t>() <= kMostPatch;
                      });
    if (!fits)
      throw_bad_data("transformer/config.json: 'patch_size' is " + shown(*found) +
                     ", not three whole numbers from 1 to " + std::to_string(kMostPatch));
    return {found->at(0).get<std::int64_t>(), found->at(1).get<std::int64_t>(),
            found->at(2).get<std::int64_t>()};
  }

  Projection projection(const std::string& module, std::int64_t rows, std::int64_t cols,
                        Activation activation = Activation::none) {
    book_.take(module + ".weight", {rows, cols});
    return with_bias(module, rows, cols, activation);
  }

  // The weight was taken.
  Projection with_bias(const std::string& module, std::int64_t rows, std::int64_t cols,
                       Activation activation) {
    book_.take(module + ".bias", {rows});
    return {.weight = matrix_rows(module + ".weight", 0, rows, cols),
            .bias = vector_part(module + ".bias", 0, rows),
            .activation = activation};
  }

  // A convolution whose windows neither overlap nor leave gaps is a product of each of them.
  Projection patch_embedding(const Refinement& made) {
    const auto module = named(names::kPatchEmbedding);
    book_.take(module + ".weight",
               {model_.hidden, made.channels, made.patch.frames, made.patch.height, made.patch.width});
    return with_bias(module, model_.hidden, made.inputs(), Activation::none);
  }

  // Frequencies in f32 as diffusers' get_timestep_embedding has them, with no shift of the exponent.
  TimeEmbedding time_embedding() {
    const auto width = config_.integer(keys::kTimeWidth, 2, kMostWidth).value_or(256);
    if (width % 2 != 0)
      throw_refused("cannot run yet: sinusoids of the time of " + std::to_string(width) +
                    " elements; the number must be even");
    TimeEmbedding time;
    const auto half = width / 2;
    const auto step = static_cast<float>(-exact::log(facts_.time_base));
    for (std::int64_t i = 0; i < half; ++i) {
      const float exponent = step * static_cast<float>(i) / static_cast<float>(half);
      time.frequencies.push_back(static_cast<float>(exact::exp(exponent)));
    }
    time.cosines_first = true;
    time.first = projection(named(names::kTimeFirst), model_.hidden, width, Activation::silu);
    time.second = projection(named(names::kTimeSecond), model_.hidden, model_.hidden);
    time.rows = 6;
    time.condition = projection(named(names::kTimeCondition), time.rows * model_.hidden, model_.hidden);
    return time;
  }

  // Rows and columns get a third of a head each, rounded down to whole pairs; frames what is left.
  RopeSpec grid_rope() const {
    const auto narrow = 2 * (model_.head_dim / 6);
    const std::array sizes = {model_.head_dim - 2 * narrow, narrow, narrow};
    RopeSpec rope;
    rope.style = RopeStyle::interleaved;
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      for (std::int64_t i = 0; i < sizes[axis]; i += 2) {
        const auto exponent = static_cast<double>(i) / static_cast<double>(sizes[axis]);
        rope.axes[axis].push_back(1 / exact::pow(facts_.rope_theta, exponent));
      }
    }
    return rope;
  }

  ConfigReader& config_;
  const RefinementFacts& facts_;
  TensorBook& book_;
  Recipe& recipe_;
  std::string layers_;
  ModelConfig model_;
  BlockBuilder blocks_;
};

// Keys of stacks that look at a picture too.
void refuse_pictures(const Json& config) {
  for (const auto* const key : {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}) {
    const auto found = config.find(key);
    if (found != config.end() && !says_nothing(*found))
      throw_refused("cannot run yet: the stack looks at a picture beside the text ('" + std::string(key) +
                    "' in transformer/config.json): image to video is not in this build");
  }
}

const Json& component_of(const PipelineConfig& pipeline, const char* name) {
  const auto found = pipeline.components.find(name);
  if (found == pipeline.components.end())
    throw_missing("the pipeline has no '" + std::string(name) + "/config.json'");
  return found->second;
}

}  // namespace

Recipe build_refinement(const PipelineConfig& pipeline, const TensorHeaders& headers,
                        const RecipeOptions& options) {
  Recipe recipe;
  const auto& facts = facts_for(pipeline.index);
  check_index(pipeline.index, options, recipe);
  for (const auto& [component, expected] :
       {std::pair(kTextComponent, facts.text), std::pair(kCodecComponent, facts.codec)}) {
    const auto named_class = class_of(pipeline.index, component);
    if (named_class != expected)
      throw_refused("cannot run yet: model_index.json says that " + std::string(component) + " is a " +
                    shown(named_class) + ", and a " + std::string(facts.pipeline) + " is known with a " +
                    std::string(expected));
  }
  const auto& config = component_of(pipeline, kStackComponent);
  ConfigReader stack(config);
  ConfigReader text(component_of(pipeline, kTextComponent), std::string(kTextComponent) + ".");
  refuse_pictures(config);
  for (const auto* const key : {"_class_name", "_diffusers_version"}) stack.mark_read(key);

  recipe.shape = "iterative refinement";
  recipe.model_type = std::string(facts.stack);
  TensorBook book(headers);
  RefinementBuilder builder(stack, facts, book, recipe);
  builder.build();
  recipe.encoder = build_text_encoder(text, book, recipe.notes);
  builder.project_text(*recipe.encoder);
  std::vector<const ConfigReader*> configs = {&stack, &text};
  std::optional<ConfigReader> codec;
  if (const auto found = pipeline.components.find(kCodecComponent); found != pipeline.components.end()) {
    const auto root = std::string(kCodecComponent) + ".";
    codec.emplace(found->second, root);
    recipe.video = build_video_codec(*codec, book, root);
    if (recipe.video->latent_channels != recipe.refinement->channels)
      throw_bad_data("the stack refines latents of " + std::to_string(recipe.refinement->channels) +
                     " channels and the codec reads " + std::to_string(recipe.video->latent_channels) +
                     "; the two are not of one checkpoint");
    configs.push_back(&*codec);
  }
  refuse_leftovers(configs, book, options, recipe);
  return recipe;
}

}  // namespace diffuse
