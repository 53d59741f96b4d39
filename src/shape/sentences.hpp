// The sentences of a verdict: each is one clear sentence that says what stands in the way, or what will be
// run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shape/verdict.hpp"

namespace diffuse {

std::string runs_sentence(const Verdict& verdict, std::string_view ignored_python_of);
std::string u_net_sentence(std::string_view class_name);
std::string recurrent_sentence(std::string_view mark);
std::string encoder_alone_sentence(std::string_view class_name);
std::string remote_code_sentence(std::string_view family);
std::string own_pipeline_sentence(std::string_view named);
std::string long_skips_sentence(std::string_view class_name, std::string_view tensor);
std::string no_depth_sentence(std::string_view problem);
std::string unknown_class_sentence(std::string_view class_name);
std::string unknown_refiner(std::string_view class_name);
std::string helps_only(std::string_view class_name);
std::string no_transformer_sentence(std::string_view pipeline);

// Halves of sentences, for no_depth_sentence.
std::string depth_mismatch(const std::string& depth_at, int64_t depth, const std::string& path,
                           int64_t highest);
std::string no_numbered_layers();

}  // namespace diffuse
