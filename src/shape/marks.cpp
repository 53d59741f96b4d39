#include "shape/marks.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "shape/config_view.hpp"
#include "shape/layer_lists.hpp"
#include "shape/sections.hpp"

namespace diffuse {
namespace {

struct Ending {
  std::string_view text;
  Head head;
};

// The first that fits decides.
constexpr std::array<Ending, 25> kEndings = {{
    {"ForCausalLM", Head::generates_alone},
    {"LMHeadModel", Head::generates},
    {"ModelWithLMHead", Head::generates},
    {"DoubleHeadsModel", Head::generates},
    {"GenerationDecoder", Head::generates_alone},
    {"ForCausalImageModeling", Head::generates_alone},
    {"ForConditionalGeneration", Head::generates_given},
    {"ForGeneration", Head::generates_given},
    {"Text2Text", Head::generates_given},
    {"ForTextToText", Head::generates_given},
    {"ForSpeechToText", Head::generates_given},
    {"ForSpeechToSpeech", Head::generates_given},
    {"ForTextToSpeech", Head::generates_given},
    {"ForTextToWaveform", Head::generates_given},
    {"ForImageTextToText", Head::generates_given},
    {"ForSeq2SeqLM", Head::generates_given},
    {"MTModel", Head::generates_given},
    {"ForSpeechSeq2Seq", Head::generates_given},
    {"ForVision2Seq", Head::generates_given},
    {"EncoderDecoderModel", Head::generates_given},
    {"VisionModel", Head::encodes},
    {"TextModel", Head::encodes},
    {"AudioModel", Head::encodes},
    {"EncoderModel", Head::encodes},
    {"Encoder", Head::encodes},
}};

// Anywhere behind the last "For" of a class name: ForMaskedLM, ForSequenceClassification, ...
constexpr std::array<std::string_view, 14> kEncodingTasks = {
    "Masked",     "Classification", "QuestionAnswering", "MultipleChoice", "Prediction", "PreTraining",
    "CTC",        "Segmentation",   "Detection",         "Retrieval",      "Embedding",  "XVector",
    "Regression", "Similarity"};

constexpr std::array<std::string_view, 8> kImageWords = {"image", "img", "vision", "visual",
                                                         "vit",   "boi", "eoi",    "vq"};
constexpr std::array<std::string_view, 1> kVideoWords = {"video"};
constexpr std::array<std::string_view, 8> kAudioWords = {"audio", "speech",    "acoustic", "sound",
                                                         "codec", "acoustics", "boa",      "eoa"};
// Words of keys that stand for media where they name a number: placeholder ids, and the pitch of a
// spectrogram.
constexpr std::array<std::string_view, 3> kPlaceholderWords = {"token", "tokens", "index"};
constexpr std::array<std::string_view, 3> kSpectrogramKeys = {"num_mel_bins", "input_feat_per_channel",
                                                              "num_mel_channels"};

// Keys of configs with an encoder and a decoder.
constexpr std::array<std::string_view, 6> kEncoderKin = {
    "decoder_start_token_id",    "encoder_layers", "decoder_layers", "num_decoder_layers",
    "encoder_num_hidden_layers", "encoder"};

// Keys that only recurrent stacks have. A number above zero, a filled object or a filled list says yes.
constexpr std::array<std::string_view, 26> kStateKeys = {"linear_attn_alpha_factor",
                                                         "cca_time0",
                                                         "state_size",
                                                         "d_state",
                                                         "d_conv",
                                                         "lru_width",
                                                         "conv_L_cache",
                                                         "rescale_every",
                                                         "wkv_head_size",
                                                         "time_mix_extra_dim",
                                                         "linear_conv_kernel_dim",
                                                         "short_conv_kernel_size",
                                                         "short_conv_kernel",
                                                         "short_conv_L",
                                                         "linear_attn_config",
                                                         "linear_num_key_heads",
                                                         "linear_num_value_heads",
                                                         "chunkwise_kernel",
                                                         "sequence_kernel",
                                                         "step_kernel",
                                                         "slstm_at",
                                                         "mlstm_block",
                                                         "ssm_cfg",
                                                         "number_of_conv_states",
                                                         "retention_heads",
                                                         "decoder_retention_heads"};
constexpr std::array<std::string_view, 3> kStatePrefixes = {"mamba_", "ssm_", "rwkv_"};
// Encoders of speech convolve too, and a flat encoder-decoder config does not say whose key this is; a list
// of widths belongs to a feature extractor.
constexpr std::array<std::string_view, 2> kConvolutionKeys = {"conv_kernel", "conv_kernel_size"};

bool says_something(const nlohmann::json& value) {
  if (value.is_number()) return value > 0;
  return value.is_string() || ((value.is_object() || value.is_array()) && !value.empty());
}

bool is_state_key(std::string_view key) {
  return std::ranges::find(kStateKeys, key) != kStateKeys.end() ||
         std::ranges::any_of(kStatePrefixes,
                             [&](std::string_view prefix) { return key.starts_with(prefix); });
}

std::optional<std::string> state_by_keys(const Section& stack, bool with_convolutions) {
  for (const auto& [key, value] : stack.object->items()) {
    if (is_state_key(key) && says_something(value)) return joined(stack.path, key);
  }
  if (!with_convolutions) return std::nullopt;
  for (const std::string_view key : kConvolutionKeys) {
    const nlohmann::json* value = declared(*stack.object, key);
    if (value != nullptr && count_of(*value)) return joined(stack.path, key);
  }
  return std::nullopt;
}

// A section, or the name of a tower, or a placeholder's id.
bool stands_for_media(const std::string& key, const nlohmann::json& value) {
  if (value.is_object()) return !value.empty();
  if (key.ends_with("tower")) return value.is_string();
  return value.is_number_integer() && has_word(key, kPlaceholderWords);
}

}  // namespace

Head head_of(std::string_view class_name) {
  for (const Ending& ending : kEndings) {
    if (class_name.ends_with(ending.text)) return ending.head;
  }
  const size_t task_at = class_name.rfind("For");
  if (task_at != std::string_view::npos) {
    const std::string_view task = class_name.substr(task_at);
    const auto occurs = [&](std::string_view word) { return task.find(word) != std::string_view::npos; };
    if (std::ranges::any_of(kEncodingTasks, occurs)) return Head::encodes;
  }
  return class_name.ends_with("Model") ? Head::bare : Head::unknown;
}

bool generates(Head head) {
  switch (head) {
    case Head::generates_alone:
    case Head::generates:
    case Head::generates_given:
      return true;
    case Head::encodes:
    case Head::bare:
    case Head::unknown:
      return false;
  }
  return false;
}

std::string answering_class(const nlohmann::json& config) {
  const nlohmann::json* named = declared(config, "architectures");
  if (named == nullptr || !named->is_array()) return "";
  std::string first;
  for (const nlohmann::json& entry : *named) {
    if (!entry.is_string()) continue;
    const std::string& name = entry.get_ref<const std::string&>();
    const Head head = head_of(name);
    if (generates(head)) return name;
    if (first.empty()) first = name;
  }
  return first;
}

Media media_read(const DepthFinding& finding) {
  Media media;
  for (const Section& section : finding.chain) {
    for (const auto& [key, value] : section.object->items()) {
      if (!stands_for_media(key, value)) continue;
      media.image = media.image || has_word(key, kImageWords);
      media.video = media.video || has_word(key, kVideoWords);
      media.audio = media.audio || has_word(key, kAudioWords);
    }
    for (const std::string_view key : kSpectrogramKeys)
      media.audio = media.audio || declared(*section.object, key);
  }
  return media;
}

bool reads_encoder(const DepthFinding& finding, Head head, const Media& media) {
  if (head == Head::generates_alone) return false;
  const nlohmann::json& root = *finding.chain.front().object;
  if (declared_as(root, "use_decoder_only_language_model", true)) return false;
  if (declared_as(root, "use_decoder_only_language_model", false)) return true;
  const auto says_yes = [](const Section& section) {
    return declared_as(*section.object, "is_encoder_decoder", true);
  };
  if (std::ranges::any_of(finding.chain, says_yes)) return true;
  if (declared(root, "is_encoder_decoder") != nullptr || head == Head::generates) return false;
  // Hub files leave the key out; then the parts tell.
  const Section& stack = finding.chain.back();
  if (stack.path.starts_with("decoder") || declared(*stack.object, "encoder_config") != nullptr) return true;
  const auto has_kin = [](const Section& section) {
    return std::ranges::any_of(kEncoderKin,
                               [&](auto key) { return declared(*section.object, key) != nullptr; });
  };
  if (std::ranges::any_of(finding.chain, has_kin)) return true;
  // What generates from something, and has nothing in front of its stack, is given an encoder's output.
  return media == Media{} && std::ranges::none_of(root.items(), [](const auto& entry) {
           return entry.value().is_object() && is_side_section(entry.key());
         });
}

std::optional<std::string> recurrent_mark(const DepthFinding& finding, bool reads_encoder) {
  const Section& stack = finding.chain.back();
  if (const auto listed = state_by_lists(*stack.object, finding.depth)) {
    return listed->recurrent ? std::optional(joined(stack.path, listed->mark)) : std::nullopt;
  }
  return state_by_keys(stack, !reads_encoder);
}

bool brings_own_python(const nlohmann::json& config) {
  const nlohmann::json* map = declared(config, "auto_map");
  return map != nullptr && !map->empty();
}

bool needs_own_python(const nlohmann::json& config, std::span<const std::string_view> known_families) {
  return brings_own_python(config) &&
         std::ranges::find(known_families, text_of(config, "model_type")) == known_families.end();
}

}  // namespace diffuse
