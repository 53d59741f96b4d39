#include "shape/depth.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "shape/config_view.hpp"
#include "shape/layer_lists.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::string_view, 5> kDecoderDepthKeys = {
    "decoder_layers", "num_decoder_layers", "n_decoder_layers", "decoder_num_hidden_layers",
    "decoder_num_layers"};

// A stack that is run in cycles may count its passes as layers too: then its own length is named first.
constexpr std::array<std::string_view, 10> kDepthKeys = {
    "num_layers_per_stack",   "num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers",
    "num_transformer_layers", "num_blocks",        "nlayers", "depth"};

// Beside one of these a plain name is the encoder's, and no key names the decoder's depth.
constexpr std::array<std::string_view, 4> kEncoderDepthKeys = {
    "encoder_layers", "num_encoder_layers", "n_encoder_layers", "encoder_num_hidden_layers"};

constexpr std::array<std::string_view, 4> kFurtherHeadKeys = {"num_nextn_predict_layers", "num_mtp_layers",
                                                              "mtp_num_hidden_layers", "num_mtp_modules"};

// Configs nest models in models: three levels exist, and a search must end.
constexpr size_t kDeepestChain = 5;

struct Named {
  std::string_view key;
  const nlohmann::json* value;
};

template <size_t N>
std::optional<Named> first_of(const nlohmann::json& object, const std::array<std::string_view, N>& keys) {
  for (const std::string_view key : keys) {
    const nlohmann::json* value = declared(object, key);
    if (value != nullptr && !value->is_object()) return Named{key, value};
  }
  return std::nullopt;
}

std::optional<Named> depth_key(const nlohmann::json& object) {
  if (const auto decoder = first_of(object, kDecoderDepthKeys)) return decoder;
  if (first_of(object, kEncoderDepthKeys)) return std::nullopt;
  return first_of(object, kDepthKeys);
}

void read_depth(const Section& section, DepthFinding& finding) {
  if (const auto named = depth_key(*section.object)) {
    finding.depth_at = joined(section.path, named->key);
    finding.depth = count_of(*named->value);
    if (!finding.depth) {
      finding.problem = finding.depth_at + " is " + quoted(*named->value) +
                        ", which is no whole number from 1 to " + std::to_string(kMaxDepth);
    } else if (lists_halves_of_layers(*section.object, *finding.depth)) {
      finding.depth = *finding.depth / 2;
    }
    return;
  }
  if (const auto list = listed_layers(*section.object)) {
    finding.depth_at = joined(section.path, list->key);
    finding.depth = count_of(list->length);
    if (!finding.depth) finding.problem = finding.depth_at + " lists " + quoted(list->length) + " layers";
  }
}

bool search(std::vector<Section>& chain, DepthFinding& finding) {
  read_depth(chain.back(), finding);
  if (!finding.depth_at.empty()) return true;
  if (chain.size() >= kDeepestChain) return false;
  for (Section& candidate : stack_candidates(chain.back())) {
    chain.push_back(std::move(candidate));
    if (search(chain, finding)) return true;
    chain.pop_back();
  }
  return false;
}

}  // namespace

DepthFinding find_depth(const nlohmann::json& config) {
  DepthFinding finding;
  finding.chain = {{"", &config}};
  if (search(finding.chain, finding)) return finding;
  finding.problem = first_of(config, kEncoderDepthKeys)
                        ? "the config names its encoder's depth and not its decoder's"
                        : "no key of the config names the depth of a stack that answers";
  return finding;
}

int64_t layers_beyond_depth(const DepthFinding& finding) {
  for (const Section& section : finding.chain) {
    if (const auto named = first_of(*section.object, kFurtherHeadKeys))
      return count_of(*named->value, 0).value_or(0);
  }
  return 0;
}

}  // namespace diffuse
