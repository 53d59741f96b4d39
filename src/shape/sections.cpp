#include "shape/sections.hpp"

#include <algorithm>
#include <array>

#include "shape/config_view.hpp"

namespace diffuse {
namespace {

// In the order in which they are believed: of an assistant that thinks and then talks, the thinker answers.
constexpr std::array<std::string_view, 14> kStackSections = {
    "thinker_config", "text_config", "llm_config",     "language_config", "language_model_config",
    "lm_config",      "llm",         "language_model", "text_model",      "decoder_config",
    "decoder",        "vlm_config",  "talker_config",  "backbone_config"};

constexpr std::array<std::string_view, 41> kSideWords = {
    "vision",    "visual",    "vit",       "image",     "img",       "video",     "audio",
    "speech",    "acoustic",  "acoustics", "sound",     "encoder",   "tower",     "sam",
    "clip",      "qformer",   "perceiver", "projector", "connector", "resampler", "adapter",
    "adaptor",   "aligner",   "codec",     "vq",        "vae",       "tokenizer", "patcher",
    "depth",     "flow",      "dit",       "diffusion", "token2wav", "code2wav",  "vocoder",
    "predictor", "timestamp", "mtp",       "draft",     "eagle",     "pooling"};

}  // namespace

bool is_side_section(std::string_view name) {
  return has_word(name, kSideWords);
}

std::vector<Section> stack_candidates(const Section& section) {
  std::vector<Section> found;
  for (const std::string_view name : kStackSections) {
    const nlohmann::json* object = declared(*section.object, name);
    if (object != nullptr && object->is_object()) found.push_back({joined(section.path, name), object});
  }
  for (const auto& [name, value] : section.object->items()) {
    const bool known = std::ranges::find(kStackSections, name) != kStackSections.end();
    if (value.is_object() && !known && !is_side_section(name))
      found.push_back({joined(section.path, name), &value});
  }
  return found;
}

std::string joined(std::string_view path, std::string_view key) {
  std::string whole(path);
  if (!whole.empty()) whole += '.';
  return whole.append(key);
}

std::vector<Section> chain_to(const nlohmann::json& root, std::string_view path) {
  std::vector<Section> chain = {{"", &root}};
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    const nlohmann::json* object = declared(*chain.back().object, name);
    if (object == nullptr || !object->is_object()) break;
    chain.push_back({joined(chain.back().path, name), object});
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return chain;
}

}  // namespace diffuse
