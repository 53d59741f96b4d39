#include "recipe/codec_recipe.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/model_config.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostCodecSize = 1 << 16;
constexpr std::int64_t kMostParts = 64;

std::int64_t size_of_key(ConfigReader& section, std::string_view name, std::int64_t otherwise,
                         std::int64_t most = kMostCodecSize) {
  const std::array names = {name};
  return section.integer(names, 1, most).value_or(otherwise);
}

bool flag(ConfigReader& section, std::string_view name, bool otherwise) {
  const std::array names = {name};
  return section.boolean(names).value_or(otherwise);
}

std::string word(ConfigReader& section, std::string_view name, std::string_view otherwise) {
  const std::array names = {name};
  return section.text(names).value_or(std::string(otherwise));
}

std::vector<std::int64_t> ratios_of(ConfigReader& section) {
  constexpr std::string_view kName = "upsampling_ratios";
  section.mark_read(kName);
  const auto found = section.json().find(kName);
  if (found == section.json().end() || found->is_null()) return {8, 5, 4, 2};
  std::vector<std::int64_t> ratios;
  for (const auto& ratio : *found) {
    const bool fits = ratio.is_number_integer() && ratio >= 1 && ratio <= 1024;
    if (!fits) break;
    ratios.push_back(ratio.get<std::int64_t>());
  }
  if (!found->is_array() || ratios.empty() || ratios.size() > 16 || ratios.size() != found->size()) {
    throw_bad_data("config.json: 'audio_encoder.upsampling_ratios' is " + shown(*found) +
                   ", not a list of 1 to 16 whole numbers from 1 to 1024");
  }
  return ratios;
}

CodecPadding padding_of(ConfigReader& section) {
  const auto name = word(section, "pad_mode", "reflect");
  if (name == "reflect") return CodecPadding::reflect;
  if (name == "constant") return CodecPadding::zeros;
  if (name == "replicate") return CodecPadding::edge;
  throw_refused("cannot run yet: its codec pads its convolutions by pad_mode " + shown(name));
}

class Builder {
 public:
  Builder(ConfigReader& section, const CodecUse& use, TensorBook& book)
      : section_(section), use_(use), book_(book) {}

  SoundCodec build() {
    check_kind();
    read_sizes();
    build_codebooks();
    build_decoder();
    book_.pass_over(std::string(names::kCodec) + "encoder.");
    return std::move(codec_);
  }

 private:
  void check_kind() {
    const auto type = section_.text(keys::kModelType).value_or("encodec");
    if (type != "encodec")
      throw_refused("cannot run yet: its codec is " + shown(type) + ", and this build has EnCodec");
    const auto norm = word(section_, "norm_type", "weight_norm");
    if (norm != "weight_norm")
      throw_refused("cannot run yet: its codec is normed by norm_type " + shown(norm) +
                    ", not by its weights");
    // Of sound that is encoded: what is decoded from codes comes as one frame and is not scaled. How many
    // codebooks a bandwidth takes, the weights show.
    for (const auto name : {"normalize", "chunk_length_s", "overlap", "target_bandwidths"})
      section_.mark_read(name);
  }

  void read_sizes() {
    codec_.rate = size_of_key(section_, "sampling_rate", 24000, 1 << 20);
    codec_.channels = section_.integer(keys::kChannels, 1, 2).value_or(1);
    codec_.passes = use_.channels;
    codec_.codebook_size = size_of_key(section_, "codebook_size", 1024);
    const std::array hidden = {std::string_view("hidden_size")};
    codec_.hidden = section_.integer(hidden, 1, kMostCodecSize).value_or(128);
    codec_.causal = flag(section_, "use_causal_conv", true);
    codec_.padding = padding_of(section_);
    if (codec_.passes > 1 && codec_.channels > 1)
      throw_refused("cannot run yet: a codec of two channels under a stack of two channels");
    if (use_.codebooks % codec_.passes != 0) {
      throw_bad_data("config.json: " + std::to_string(use_.codebooks) +
                     " codebooks cannot take turns between two channels");
    }
    if (use_.vocab > codec_.codebook_size) {
      throw_bad_data("config.json: the decoder makes codes below " + std::to_string(use_.vocab) +
                     " and the codec knows those below " + std::to_string(codec_.codebook_size));
    }
    if (const auto width = size_of_key(section_, "codebook_dim", codec_.hidden); width != codec_.hidden) {
      throw_refused("cannot run yet: its codec's codebooks are " + std::to_string(width) +
                    " wide and its rows " + std::to_string(codec_.hidden));
    }
  }

  void build_codebooks() {
    const auto root = std::string(names::kCodec) + "quantizer.layers.";
    for (std::int64_t i = 0; i < use_.codebooks / codec_.passes; ++i) {
      const auto name = root + std::to_string(i) + ".codebook.embed";
      book_.take(name, {codec_.codebook_size, codec_.hidden});
      codec_.codebooks.push_back(name);
    }
    book_.pass_over(root);  // what they were trained by, and codebooks of a higher bandwidth
  }

  void build_decoder() {
    const auto ratios = ratios_of(section_);
    const auto filters = size_of_key(section_, "num_filters", 32);
    auto width = filters << ratios.size();
    if (width > kMostCodecSize)
      throw_bad_data("config.json: the codec's num_filters, doubled by each ratio, are over 65536");
    codec_.first = convolution(next(), codec_.hidden, width, size_of_key(section_, "kernel_size", 7), 1);
    build_lstm(next(), width);
    for (const auto ratio : ratios) {
      next();  // an ELU
      codec_.stages.push_back(stage(next(), width, ratio));
      width /= 2;
      const auto units = size_of_key(section_, "num_residual_layers", 1, kMostParts);
      std::int64_t dilation = 1;
      for (std::int64_t i = 0; i < units; ++i) {
        codec_.stages.back().units.push_back(unit(next(), width, dilation));
        dilation *= size_of_key(section_, "dilation_growth_rate", 2);
        if (dilation > kMostCodecSize) throw_bad_data("config.json: the codec's dilation grows over 65536");
      }
    }
    next();
    codec_.last =
        convolution(next(), width, codec_.channels, size_of_key(section_, "last_kernel_size", 7), 1);
  }

  // The next module of the decoder, as it is numbered.
  std::string next() {
    return std::string(names::kCodec) + "decoder.layers." + std::to_string(number_++) + ".";
  }

  struct WeightNorm {
    std::string gain, direction;
  };
  // In the names of torch's older weight norm, or of the newer one.
  WeightNorm weight_norm(const std::string& module, const std::vector<std::int64_t>& shape) {
    const auto older = module + "conv.weight_";
    const auto newer = module + "conv.parametrizations.weight.original";
    const bool old = book_.has(older + "g");
    WeightNorm made = {old ? older + "g" : newer + "0", old ? older + "v" : newer + "1"};
    book_.take(made.gain, {shape.front(), 1, 1});
    book_.take(made.direction, shape);
    return made;
  }
  std::string bias(const std::string& module, std::int64_t size) {
    auto name = module + "conv.bias";
    book_.take(name, {size});
    return name;
  }

  CodecConvolution convolution(const std::string& module, std::int64_t inputs, std::int64_t outputs,
                               std::int64_t width, std::int64_t dilation) {
    auto weight = weight_norm(module, {outputs, inputs, width});
    return {.gain = std::move(weight.gain),
            .direction = std::move(weight.direction),
            .bias = bias(module, outputs),
            .inputs = inputs,
            .outputs = outputs,
            .width = width,
            .dilation = dilation};
  }

  void build_lstm(const std::string& module, std::int64_t width) {
    const auto layers = size_of_key(section_, "num_lstm_layers", 2, kMostParts);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto name = [&](const char* part) { return module + "lstm." + part + "_l" + std::to_string(i); };
      CodecLstmLayer layer = {name("weight_ih"), name("weight_hh"), name("bias_ih"), name("bias_hh")};
      book_.take(layer.input, {4 * width, width});
      book_.take(layer.recurrent, {4 * width, width});
      book_.take(layer.input_bias, {4 * width});
      book_.take(layer.recurrent_bias, {4 * width});
      codec_.lstm.push_back(std::move(layer));
    }
  }

  CodecStage stage(const std::string& module, std::int64_t width, std::int64_t ratio) {
    auto weight = weight_norm(module, {width, width / 2, 2 * ratio});
    const std::array names = {std::string_view("trim_right_ratio")};
    const auto right_share = section_.number(names, 0, 1).value_or(1);
    if (!codec_.causal && right_share != 1)
      throw_bad_data("config.json: trim_right_ratio is of causal codecs, and this one is not");
    const auto right = codec_.causal
                           ? static_cast<std::int64_t>(std::ceil(static_cast<double>(ratio) * right_share))
                           : ratio / 2;
    return {.gain = std::move(weight.gain),
            .direction = std::move(weight.direction),
            .bias = bias(module, width / 2),
            .inputs = width,
            .outputs = width / 2,
            .stride = ratio,
            .trim_left = ratio - right,
            .units = {}};
  }

  CodecUnit unit(const std::string& module, std::int64_t width, std::int64_t dilation) {
    const auto inner = width / size_of_key(section_, "compress", 2);
    if (inner == 0) throw_bad_data("config.json: the codec's 'compress' leaves no channel");
    const auto kernel = size_of_key(section_, "residual_kernel_size", 3);
    CodecUnit made;
    made.wide = convolution(module + "block.1.", width, inner, kernel, dilation);
    made.narrow = convolution(module + "block.3.", inner, width, 1, 1);
    if (flag(section_, "use_conv_shortcut", true))
      made.shortcut = convolution(module + "shortcut.", width, width, 1, 1);
    return made;
  }

  ConfigReader& section_;
  const CodecUse& use_;
  TensorBook& book_;
  SoundCodec codec_;
  std::int64_t number_ = 0;
};

}  // namespace

SoundCodec build_codec(ConfigReader& section, const CodecUse& use, TensorBook& book) {
  return Builder(section, use, book).build();
}

}  // namespace diffuse
