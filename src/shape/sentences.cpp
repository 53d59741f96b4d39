#include "shape/sentences.hpp"

#include <algorithm>

namespace diffuse {
namespace {

// A stranger's name, cut to what a sentence can hold; ASCII alone, so that no cut leaves half a letter.
std::string plain(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string text(name.substr(0, kLongest));
  std::ranges::replace_if(
      text, [](unsigned char letter) { return letter < ' ' || letter > '~'; }, '?');
  return name.size() > kLongest ? text + "..." : text;
}

std::string called(std::string_view class_name) {
  return class_name.empty() ? "The model" : plain(class_name);
}

std::string what_a_request_is(Shape shape) {
  switch (shape) {
    case Shape::autoregressive:
      return "each token is one pass through it, with a key-value cache in every layer";
    case Shape::encoder_memory:
      return "each token is one pass through it, and every layer reads an encoder's output";
    case Shape::iterative_refinement:
      return "each refinement step is one pass through all of it";
  }
  return "";
}

}  // namespace

std::string runs_sentence(const Verdict& verdict, std::string_view ignored_python_of) {
  const int64_t depth = verdict.depth.value_or(0);
  std::string sentence = "The stack that answers has " + std::to_string(depth) +
                         (depth == 1 ? " layer" : " layers") + " (" + plain(verdict.depth_at) + ")";
  if (verdict.shape) sentence += "; " + what_a_request_is(*verdict.shape);
  if (!ignored_python_of.empty())
    sentence += "; the Python that this checkpoint brings for " + plain(ignored_python_of) + " is ignored";
  return sentence + ".";
}

std::string u_net_sentence(std::string_view class_name) {
  return called(class_name) +
         " is a U-Net: its skips cross resolutions, so what passes between two points is several tensors.";
}

std::string recurrent_sentence(std::string_view mark) {
  return "The stack carries running state from token to token (" + plain(mark) +
         "), which cannot be handed over yet.";
}

std::string encoder_alone_sentence(std::string_view class_name) {
  return called(class_name) + " has no head that generates: it is an encoder alone, with nothing to answer.";
}

std::string remote_code_sentence(std::string_view family) {
  return "How " + (family.empty() ? std::string("the model") : '"' + plain(family) + '"') +
         " computes is only said by the checkpoint's own Python (auto_map), which is never run.";
}

std::string own_pipeline_sentence(std::string_view named) {
  return "The pipeline needs Python of its own (" + std::string(named) + "), which is never run.";
}

std::string long_skips_sentence(std::string_view class_name, std::string_view tensor) {
  return "Late layers of " + (class_name.empty() ? std::string("the model") : plain(class_name)) +
         " read what early ones put out" + (tensor.empty() ? "" : " (" + plain(tensor) + ")") +
         ", so what passes between two points is several tensors.";
}

std::string no_depth_sentence(std::string_view problem) {
  return "The depth of the stack cannot be told: " + std::string(problem) + ".";
}

std::string unknown_class_sentence(std::string_view class_name) {
  if (class_name.empty())
    return "The config names no class (architectures), so nothing says whether the model generates.";
  return "The class name " + plain(class_name) +
         " has none of the endings that say whether a model generates, such as ForCausalLM.";
}

std::string unknown_refiner(std::string_view class_name) {
  return called(class_name) + " is no diffusion transformer by its name, so nothing says that it refines.";
}

std::string helps_only(std::string_view class_name) {
  return called(class_name) + " only helps another model, so there is nothing to answer.";
}

std::string no_transformer_sentence(std::string_view pipeline) {
  return (pipeline.empty() ? std::string("The pipeline") : plain(pipeline)) +
         " has no component \"transformer\", the only kind of refining stack that can be cut into slices.";
}

std::string depth_mismatch(const std::string& depth_at, int64_t depth, const std::string& path,
                           int64_t highest) {
  return depth_at + " says " + std::to_string(depth) + ", but the highest layer index in the weights is " +
         std::to_string(highest) + " (" + plain(path) + ")";
}

std::string no_numbered_layers() {
  return "the weights hold no numbered layers of a stack that answers";
}

}  // namespace diffuse
