#include "recipe/recipe.hpp"

#include <algorithm>

namespace diffuse {
namespace {

class TensorNames {
 public:
  void add(const MatrixRef& matrix) { add(matrix.tensor); }
  void add(const VectorRef& vector) { add(vector.tensor); }
  void add(const NormSpec& norm) {
    add(norm.weight);
    add(norm.bias);
  }
  template <typename T>
  void add(const std::optional<T>& part) {
    if (part) add(*part);
  }

  void operator()(const Norm& step) { add(step.norm); }
  void operator()(const Modulate& step) { add(step.table); }
  void operator()(const Attention& step) {
    add(step.query);
    add(step.query_bias);
    add(step.key);
    add(step.key_bias);
    add(step.value);
    add(step.value_bias);
    add(step.query_norm);
    add(step.key_norm);
    add(step.output);
    add(step.output_bias);
    if (step.position_bias) add(step.position_bias->table);
  }
  void operator()(const CrossAttention& step) {
    add(step.query);
    add(step.query_bias);
    add(step.key);
    add(step.key_bias);
    add(step.value);
    add(step.value_bias);
    add(step.query_norm);
    add(step.key_norm);
    add(step.output);
    add(step.output_bias);
  }
  void operator()(const Mlp& step) {
    add(step.gate);
    add(step.gate_bias);
    add(step.up);
    add(step.up_bias);
    add(step.down);
    add(step.down_bias);
  }
  void operator()(const Experts& step) {
    add(step.router);
    for (const auto& expert : step.experts) {
      add(expert.gate);
      add(expert.up);
      add(expert.down);
    }
  }
  void operator()(const Add&) {}

  void operator()(const Front& front) {
    add(front.embedding);
    for (const auto& table : front.further) add(table);
    add(front.positions);
    add(front.norm);
  }
  void operator()(const FramesFront& front) {
    for (const auto& convolution : front.convolutions) {
      add(convolution.weight);
      add(convolution.bias);
    }
    add(front.positions);
  }

  void add(const Projection& projection) {
    add(projection.weight);
    add(projection.bias);
  }
  void add(const std::string& name) {
    if (std::find(list_.begin(), list_.end(), name) == list_.end()) list_.push_back(name);
  }
  void add(const CodecConvolution& convolution) {
    add(convolution.gain);
    add(convolution.direction);
    add(convolution.bias);
  }

  std::vector<std::string> list() && { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

}  // namespace

std::vector<std::string> tensors_of(const Block& block) {
  TensorNames names;
  for (const auto& step : block.steps) std::visit(names, step);
  return std::move(names).list();
}

std::vector<std::string> tensors_of(const Front& front) {
  TensorNames names;
  names(front);
  return std::move(names).list();
}

std::vector<std::string> tensors_of(const Encoder& encoder) {
  TensorNames names;
  std::visit(names, encoder.front);
  for (const auto& block : encoder.blocks) {
    for (const auto& step : block.steps) std::visit(names, step);
  }
  names.add(encoder.norm);
  for (const auto& projection : encoder.projections) names.add(projection);
  return std::move(names).list();
}

std::vector<std::string> tensors_of(const TimeEmbedding& time) {
  TensorNames names;
  names.add(time.first);
  names.add(time.second);
  names.add(time.condition);
  return std::move(names).list();
}

std::vector<std::string> tensors_of(const SoundCodec& codec) {
  TensorNames names;
  for (const auto& codebook : codec.codebooks) names.add(codebook);
  names.add(codec.first);
  for (const auto& layer : codec.lstm) {
    names.add(layer.input);
    names.add(layer.recurrent);
    names.add(layer.input_bias);
    names.add(layer.recurrent_bias);
  }
  for (const auto& stage : codec.stages) {
    names.add(stage.gain);
    names.add(stage.direction);
    names.add(stage.bias);
    for (const auto& unit : stage.units) {
      names.add(unit.wide);
      names.add(unit.narrow);
      names.add(unit.shortcut);
    }
  }
  names.add(codec.last);
  return std::move(names).list();
}

std::vector<std::string> tensors_of(const Back& back) {
  TensorNames names;
  names.add(back.norm);
  names.add(back.head);
  for (const auto& head : back.further) names.add(head);
  names.add(back.head_bias);
  return std::move(names).list();
}

std::vector<std::string> front_tensors(const Recipe& recipe) {
  if (!recipe.refinement) return tensors_of(recipe.front);
  TensorNames names;
  names.add(recipe.refinement->front);
  return std::move(names).list();
}

std::vector<std::string> back_tensors(const Recipe& recipe) {
  if (!recipe.refinement) return tensors_of(recipe.back);
  TensorNames names;
  names.add(recipe.refinement->norm);
  names.add(recipe.refinement->table);
  names.add(recipe.refinement->back);
  return std::move(names).list();
}

std::vector<std::string> common_tensors(const Recipe& recipe) {
  return recipe.refinement ? tensors_of(recipe.refinement->time) : std::vector<std::string>();
}

}  // namespace diffuse
