#pragma once
// Finds a stack's tensors by the dictionary and makes the steps of its blocks.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/facts.hpp"
#include "recipe/model_config.hpp"
#include "recipe/recipe.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

class BlockBuilder {
 public:
  // All must outlive it. `layers` stands in front of a layer's number ("model.layers.").
  BlockBuilder(TensorBook& book, const Facts& facts, const ModelConfig& model, std::string_view layers);

  Block block(std::int64_t layer);

  // The first of prefix + candidate that has a weight; prefix + the usual name where none has.
  std::string module(const std::string& prefix, std::span<const std::string_view> candidates) const;
  // Takes the norm's weight [size] and, as the family has it, its bias.
  NormSpec norm(const std::string& module, std::int64_t size);

 private:
  struct Linear {
    MatrixRef weight;
    std::optional<VectorRef> bias;
  };
  // Takes a weight of [sum of parts, cols] (or transposed) and its bias, cut into its parts.
  std::vector<Linear> linear(const std::string& module, std::span<const std::int64_t> parts,
                             std::int64_t cols, Presence bias);
  Linear linear(const std::string& module, std::int64_t rows, std::int64_t cols, Presence bias);
  bool has_module(const std::string& prefix, std::span<const std::string_view> candidates) const;

  Attention attention(const std::string& prefix, std::int64_t layer);
  CrossAttention cross_attention(const std::string& prefix);
  // The bias of this layer, or of layer 0 for all; nothing where the half has none.
  std::optional<PositionBias> position_bias(const std::string& prefix);
  NormSpec norm(const std::string& module, std::int64_t size, std::optional<NormKind> kind, Presence bias);
  std::optional<NormSpec> head_norm(const std::string& prefix, std::span<const std::string_view> candidates,
                                    std::int64_t heads, bool& whole_row);
  Mlp mlp(const std::string& prefix);
  Experts experts(const std::string& prefix);
  Expert stored_expert(const std::string& module);

  Block modulated_block(const std::string& prefix, std::int64_t layer);
  // Adds a branch of a block: the step between its norms, and what adds it to the residual.
  struct BranchNorms {
    std::span<const std::string_view> before, after;  // empty: none there
  };
  void add_branch(Block& block, const std::string& prefix, Step step, const BranchNorms& norms);

  TensorBook& book_;
  const Facts& facts_;
  const ModelConfig& model_;
  std::string layers_;
  std::optional<PositionBias> shared_bias_;  // of layer 0, once it was taken
};

}  // namespace diffuse
