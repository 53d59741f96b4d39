#pragma once
// Golden checkpoints' configs and headers, to be built as they are or after an edit, and a recipe as text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "recipe/build.hpp"

namespace diffuse {

struct Model {
  Json config;
  TensorHeaders headers;

  Recipe build(const std::vector<std::string>& accept = {}) const {
    return build_recipe(config, headers, {.accept = accept});
  }
  // What building throws, as "code: message"; "nothing" where it throws nothing.
  std::string refusal(const std::vector<std::string>& accept = {}) const {
    try {
      build(accept);
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
    }
    return "nothing";
  }
};

inline Model golden(const std::string& name) {
  const auto checkpoint = Checkpoint::open(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / name);
  return {checkpoint.config(), checkpoint.headers()};
}

// Everything that a recipe says, one line a step, for comparing two.
class Description {
 public:
  static std::string of(const Recipe& recipe) {
    Description made;
    made.line("model", recipe.shape, recipe.hidden, recipe.vocab, recipe.max_positions);
    for (const auto& rope : recipe.ropes) {
      made.line("rope", static_cast<int>(rope.style), rope.attention_factor);
      for (const auto value : rope.frequencies) made.line(value);
    }
    made.line("front", recipe.front.embedding, recipe.front.scale, recipe.front.positions,
              recipe.front.position_offset, recipe.front.norm);
    for (const auto& table : recipe.front.further) made.line("further table", table);
    for (const auto& head : recipe.back.further) made.line("further head", head);
    for (const auto& block : recipe.blocks) made.text_ += of(block);
    made.line("back", recipe.back.norm, recipe.back.head, recipe.back.head_bias, recipe.back.tied,
              recipe.back.scale, recipe.back.softcap);
    return made.text_;
  }
  static std::string of(const Block& block) {
    Description made;
    for (const auto& step : block.steps) std::visit(made, step);
    return made.text_;
  }

  void operator()(const Norm& step) {
    line("norm", step.in, step.out, step.norm);
    if (step.modulation) line("modulated by", step.modulation->shift, step.modulation->scale);
  }
  void operator()(const Attention& step) {
    line("attention", step.in, step.out, step.query, step.query_bias, step.key, step.key_bias, step.value,
         step.value_bias, step.output, step.output_bias, step.query_norm, step.key_norm, step.norm_whole_row,
         step.heads, step.kv_heads, step.head_dim, step.value_dim, step.scale, step.rope, step.window,
         step.softcap);
    if (!step.causal) line("not causal");
    if (step.position_bias)
      line("position bias", step.position_bias->table, step.position_bias->max_distance,
           step.position_bias->both_sides);
  }
  void operator()(const CrossAttention& step) {
    line("cross attention", step.in, step.out, step.query, step.query_bias, step.key, step.key_bias,
         step.value, step.value_bias, step.output, step.output_bias, step.heads, step.kv_heads, step.head_dim,
         step.value_dim, step.scale);
    if (step.query_norm || step.key_norm) line("normed", step.query_norm, step.key_norm);
  }
  void operator()(const Mlp& step) {
    line("mlp", step.in, step.out, step.gate, step.gate_bias, step.up, step.up_bias, step.down,
         step.down_bias, step.inner, static_cast<int>(step.activation));
  }
  void operator()(const Experts& step) {
    line("experts", step.in, step.out, step.router, step.inner, step.top_k, static_cast<int>(step.score),
         step.renormalize, step.scale, static_cast<int>(step.activation));
    for (const auto& expert : step.experts) line("expert", expert.gate, expert.up, expert.down);
  }
  void operator()(const Add& step) {
    line("add", step.from, step.to, step.scale);
    if (step.gate) line("gated by", *step.gate);
  }
  void operator()(const Modulate& step) { line("modulate", step.table); }

 private:
  template <typename... Parts>
  void line(const Parts&... parts) {
    (add(parts), ...);
    text_ += "\n";
  }
  void add(const std::string& part) { text_ += part + " "; }
  void add(const char* part) { text_ += std::string(part) + " "; }
  void add(Slot slot) { add(std::string(slot == Slot::hidden ? "hidden" : slot == Slot::a ? "a" : "b")); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add(Json(value).dump()); }
  void add(const std::vector<RowRun>& runs) {
    for (const auto& run : runs) {
      add("[" + std::to_string(run.first) + " " + std::to_string(run.count) + " " +
          std::to_string(run.row_stride) + "]");
    }
  }
  void add(const MatrixRef& matrix) {
    add(matrix.tensor);
    add(matrix.rows);
    add(matrix.cols);
    add(matrix.col_stride);
    add(matrix.runs);
  }
  void add(const VectorRef& vector) {
    add(vector.tensor);
    add(vector.count);
    add(vector.runs);
  }
  void add(const NormSpec& norm) {
    add(norm.kind == NormKind::rms ? "rms" : "layer");
    add(norm.weight);
    add(norm.bias);
    add(norm.weight_offset);
    add(norm.eps);
  }
  template <typename T>
  void add(const std::optional<T>& part) {
    if (part) {
      add(*part);
    } else {
      add("-");
    }
  }

  std::string text_;
};

}  // namespace diffuse
