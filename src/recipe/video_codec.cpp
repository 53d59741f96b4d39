#include "recipe/video_codec_recipe.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostLayerSize = 1 << 16;
constexpr std::size_t kMostStages = 12;

const Json* find(ConfigReader& config, std::string_view key) {
  config.mark_read(key);
  const auto at = config.json().find(key);
  return at == config.json().end() || at->is_null() ? nullptr : &*at;
}

// A list whose every item is of a kind.
template <typename Is>
const Json* list_of(ConfigReader& config, std::string_view key, const char* wanted, Is is) {
  const auto* value = find(config, key);
  if (value == nullptr) return nullptr;
  const bool fits =
      value->is_array() && value->size() <= kMostLayerSize && std::all_of(value->begin(), value->end(), is);
  if (!fits)
    throw_bad_data("config.json: '" + std::string(key) + "' is " + shown(*value) + ", not " + wanted);
  return value;
}

class Builder {
 public:
  Builder(ConfigReader& config, TensorBook& book, std::string root)
      : config_(config), book_(book), root_(std::move(root)) {}

  VideoCodec build() {
    check_form();
    read_latents();
    const auto multiples = read_multiples();
    const auto stretched = read_stretched(multiples.size() - 1);
    codec_.bridge = convolution("post_quant_conv", codec_.latent_channels, codec_.latent_channels, 1, 1);
    const auto widest = widths_ * multiples.back();
    codec_.first = convolution("decoder.conv_in", codec_.latent_channels, widest, 3, 3);
    build_middle(widest);
    build_stages(multiples, stretched, widest);
    codec_.norm = norm("decoder.norm_out", widths_ * multiples.front(), true);
    codec_.last = convolution("decoder.conv_out", codec_.norm.channels, kColours, 3, 3);
    check_scales();
    for (const auto* part : {"encoder.", "quant_conv."}) book_.pass_over(root_ + part);
    return std::move(codec_);
  }

 private:
  static constexpr std::int64_t kColours = 3;

  std::int64_t integer(std::string_view key, std::int64_t otherwise) {
    const std::array names = {key};
    return config_.integer(names, 1, kMostLayerSize).value_or(otherwise);
  }

  void check_form() {
    const std::array class_name = {std::string_view("_class_name")};
    const auto name = config_.text(class_name).value_or("AutoencoderKLWan");
    if (name != "AutoencoderKLWan")
      throw_refused("cannot run yet: its autoencoder is " + shown(name) +
                    ", and this build has AutoencoderKLWan");
    const std::array residual = {std::string_view("is_residual")};
    if (config_.boolean(residual).value_or(false))
      throw_refused("cannot run yet: its autoencoder is the residual one of Wan 2.2 (is_residual)");
    if (const auto* patch = find(config_, "patch_size"); patch != nullptr && *patch != 1)
      throw_refused("cannot run yet: its autoencoder works on patches of pixels (patch_size " +
                    shown(*patch) + ")");
    if (const auto colours = integer("out_channels", kColours); colours != kColours)
      throw_refused("cannot run yet: its autoencoder makes " + std::to_string(colours) +
                    " channels, not red, green and blue");
    // Of training and of the encoder.
    for (const auto* key : {"_diffusers_version", "dropout", "attn_scales", "in_channels"})
      config_.mark_read(key);
  }

  void read_latents() {
    codec_.latent_channels = integer("z_dim", 16);
    codec_.mean = numbers("latents_mean");
    codec_.deviation = numbers("latents_std");
  }
  std::vector<double> numbers(std::string_view key) {
    const auto* list =
        list_of(config_, key, "a list of numbers", [](const Json& each) { return each.is_number(); });
    const auto size = list == nullptr ? 0 : list->size();
    if (size != static_cast<std::size_t>(codec_.latent_channels))
      throw_bad_data("config.json: '" + std::string(key) + "' has " + std::to_string(size) +
                     " numbers, and the latent has " + std::to_string(codec_.latent_channels) + " channels");
    return list->get<std::vector<double>>();
  }

  std::vector<std::int64_t> read_multiples() {
    const auto base = integer("base_dim", 96);
    widths_ = integer("decoder_base_dim", base);
    const auto* list =
        list_of(config_, "dim_mult", "a list of whole numbers from 1 to 64",
                [](const Json& each) { return each.is_number_integer() && each >= 1 && each <= 64; });
    auto multiples =
        list == nullptr ? std::vector<std::int64_t>{1, 2, 4, 4} : list->get<std::vector<std::int64_t>>();
    if (multiples.empty() || multiples.size() > kMostStages)
      throw_bad_data("config.json: 'dim_mult' has " + std::to_string(multiples.size()) +
                     " stages, not 1 to 12");
    if (widths_ * *std::max_element(multiples.begin(), multiples.end()) > kMostLayerSize)
      throw_bad_data("config.json: the autoencoder's base_dim times its dim_mult is over 65536");
    return multiples;
  }

  // For each upsampler of the decoder, whether it makes frames two: the encoder's, in reverse.
  std::vector<bool> read_stretched(std::size_t upsamplers) {
    const auto* list = list_of(config_, "temperal_downsample", "a list of true and false",
                               [](const Json& each) { return each.is_boolean(); });
    auto stretched = list == nullptr ? std::vector<bool>{false, true, true} : list->get<std::vector<bool>>();
    if (stretched.size() != upsamplers)
      throw_bad_data("config.json: 'temperal_downsample' has " + std::to_string(stretched.size()) +
                     " items, and 'dim_mult' makes " + std::to_string(upsamplers) + " upsamplers");
    std::reverse(stretched.begin(), stretched.end());
    return stretched;
  }

  void build_middle(std::int64_t width) {
    const std::string part = "decoder.mid_block.";
    codec_.middle_in = residual(part + "resnets.0", width, width);
    codec_.middle.norm = norm(part + "attentions.0.norm", width, false);
    codec_.middle.qkv = convolution(part + "attentions.0.to_qkv", width, 3 * width, 0, 1);
    codec_.middle.out = convolution(part + "attentions.0.proj", width, width, 0, 1);
    codec_.middle_out = residual(part + "resnets.1", width, width);
  }

  void build_stages(const std::vector<std::int64_t>& multiples, const std::vector<bool>& stretched,
                    std::int64_t width) {
    const auto residuals = integer("num_res_blocks", 2) + 1;
    for (std::size_t i = 0; i < multiples.size(); ++i) {
      const auto part = "decoder.up_blocks." + std::to_string(i) + ".";
      const auto outputs = widths_ * multiples[multiples.size() - 1 - i];
      VideoStage stage;
      for (std::int64_t k = 0; k < residuals; ++k) {
        stage.residuals.push_back(residual(part + "resnets." + std::to_string(k), width, outputs));
        width = outputs;
      }
      if (i + 1 < multiples.size()) {
        stage.upsampler = upsampler(part + "upsamplers.0.", width, stretched[i]);
        width = width / 2;
      }
      codec_.stages.push_back(std::move(stage));
    }
  }

  VideoUpsampler upsampler(const std::string& part, std::int64_t width, bool stretches) {
    if (width % 2 != 0)
      throw_bad_data("config.json: a stage of the autoencoder is " + std::to_string(width) +
                     " channels wide, which its upsampler cannot halve");
    VideoUpsampler made;
    if (stretches) made.time = convolution(part + "time_conv", width, 2 * width, 3, 1);
    made.space = convolution(part + "resample.1", width, width / 2, 0, 3);
    return made;
  }

  VideoResidual residual(const std::string& module, std::int64_t inputs, std::int64_t outputs) {
    VideoResidual made;
    made.norm1 = norm(module + ".norm1", inputs, true);
    made.first = convolution(module + ".conv1", inputs, outputs, 3, 3);
    made.norm2 = norm(module + ".norm2", outputs, true);
    made.second = convolution(module + ".conv2", outputs, outputs, 3, 3);
    if (inputs != outputs) made.shortcut = convolution(module + ".conv_shortcut", inputs, outputs, 1, 1);
    return made;
  }

  VideoNorm norm(const std::string& module, std::int64_t channels, bool of_videos) {
    VideoNorm made = {root_ + module + ".gamma", channels};
    book_.take(made.gamma, of_videos ? std::vector<std::int64_t>{channels, 1, 1, 1}
                                     : std::vector<std::int64_t>{channels, 1, 1});
    return made;
  }

  // `time` 0: the weight has no such dimension.
  VideoConvolution convolution(const std::string& module, std::int64_t inputs, std::int64_t outputs,
                               std::int64_t time, std::int64_t space) {
    VideoConvolution made = {
        root_ + module + ".weight", root_ + module + ".bias", inputs, outputs, time, space};
    std::vector<std::int64_t> shape = {outputs, inputs};
    if (time > 0) shape.push_back(time);
    shape.insert(shape.end(), 2, space);
    book_.take(made.weight, shape);
    book_.take(made.bias, {outputs});
    return made;
  }

  void check_scales() {
    const auto check = [&](std::string_view key, std::int64_t otherwise, std::int64_t made) {
      // Where it is not stated, diffusers takes that of Wan 2.1.
      if (const auto stated = integer(key, otherwise); stated != made)
        throw_bad_data("config.json: '" + std::string(key) + "' is " + std::to_string(stated) +
                       ", and the autoencoder's stages make " + std::to_string(made));
    };
    check("scale_factor_spatial", 8, codec_.space_scale());
    check("scale_factor_temporal", 4, codec_.time_scale());
  }

  ConfigReader& config_;
  TensorBook& book_;
  std::string root_;
  std::int64_t widths_ = 0;  // of a stage of multiple 1
  VideoCodec codec_;
};

}  // namespace

std::int64_t VideoCodec::space_scale() const {
  std::int64_t scale = 1;
  for (const auto& stage : stages) scale *= stage.upsampler ? 2 : 1;
  return scale;
}

std::int64_t VideoCodec::time_scale() const {
  std::int64_t scale = 1;
  for (const auto& stage : stages) scale *= stage.upsampler && stage.upsampler->time ? 2 : 1;
  return scale;
}

VideoCodec build_video_codec(ConfigReader& config, TensorBook& book, const std::string& root) {
  return Builder(config, book, root).build();
}

VideoCodec read_video_codec(const Json& config, const TensorHeaders& headers, const std::string& root) {
  ConfigReader reader(config);
  TensorBook book(headers);
  auto codec = build_video_codec(reader, book, root);
  for (const auto& key : reader.leftovers())
    throw_refused("cannot run yet: the autoencoder's config.json has " + shown(key.path) + " = " +
                  shown(*key.value) + ", a key that this build does not know");
  for (const auto& name : book.leftovers()) {
    if (name.starts_with(root))
      throw_refused("cannot run yet: the autoencoder has the tensor " + shown(name) + ", which no step uses");
  }
  return codec;
}

std::vector<std::string> tensors_of(const VideoCodec& codec) {
  std::vector<std::string> names;
  const auto add_convolution = [&](const VideoConvolution& each) {
    names.push_back(each.weight);
    names.push_back(each.bias);
  };
  const auto add_residual = [&](const VideoResidual& each) {
    names.push_back(each.norm1.gamma);
    names.push_back(each.norm2.gamma);
    add_convolution(each.first);
    add_convolution(each.second);
    if (each.shortcut) add_convolution(*each.shortcut);
  };
  add_convolution(codec.bridge);
  add_convolution(codec.first);
  add_residual(codec.middle_in);
  names.push_back(codec.middle.norm.gamma);
  add_convolution(codec.middle.qkv);
  add_convolution(codec.middle.out);
  add_residual(codec.middle_out);
  for (const auto& stage : codec.stages) {
    for (const auto& each : stage.residuals) add_residual(each);
    if (!stage.upsampler) continue;
    if (stage.upsampler->time) add_convolution(*stage.upsampler->time);
    add_convolution(stage.upsampler->space);
  }
  names.push_back(codec.norm.gamma);
  add_convolution(codec.last);
  return names;
}

}  // namespace diffuse
