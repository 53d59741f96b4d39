#include "shape/verdict.hpp"

#include <stdexcept>
#include <utility>

#include "shape/config_view.hpp"
#include "shape/depth.hpp"
#include "shape/diffusion.hpp"
#include "shape/marks.hpp"
#include "shape/sentences.hpp"
#include "shape/weight_names.hpp"

namespace diffuse {
namespace {

// What the weights say against the depth, or "".
std::string mismatch(const DepthFinding& finding, bool encoder_is_elsewhere,
                     std::span<const std::string> names) {
  const auto seen = answering_stack(names, encoder_is_elsewhere);
  if (!seen) return no_numbered_layers();
  const int64_t beyond = seen->highest + 1 - *finding.depth;
  if (beyond >= 0 && beyond <= layers_beyond_depth(finding)) return "";
  return depth_mismatch(finding.depth_at, *finding.depth, seen->path, seen->highest);
}

Verdict judge_transformers(const nlohmann::json& config, const VerdictInput& input) {
  const DepthFinding finding = find_depth(config);
  const std::string class_name = answering_class(config);
  const Head head = head_of(class_name);
  Verdict verdict;
  verdict.depth = finding.depth;
  verdict.depth_at = finding.depth_at;
  verdict.generates = generates(head);
  verdict.media = media_read(finding);
  verdict.reads_encoder = verdict.generates && reads_encoder(finding, head, verdict.media);
  const auto mark = recurrent_mark(finding, verdict.reads_encoder);
  verdict.recurrent = mark.has_value();
  if (verdict.generates)
    verdict.shape = verdict.reads_encoder ? Shape::encoder_memory : Shape::autoregressive;

  const auto refuse = [&](Refusal refusal, std::string reason) {
    verdict.refusal = refusal;
    verdict.reason = std::move(reason);
    return verdict;
  };
  // What no version of this program could answer comes first, what only this build lacks after it, doubt
  // last.
  if (head == Head::encodes) return refuse(Refusal::encoder_alone, encoder_alone_sentence(class_name));
  if (mark) return refuse(Refusal::recurrent, recurrent_sentence(*mark));
  const std::string family = text_of(config, "model_type");
  if (needs_own_python(config, input.known_families))
    return refuse(Refusal::remote_code, remote_code_sentence(family));
  if (head == Head::bare && finding.depth && finding.chain.size() == 1)
    return refuse(Refusal::encoder_alone, encoder_alone_sentence(class_name));
  if (!verdict.generates) return refuse(Refusal::unknown_class, unknown_class_sentence(class_name));
  if (!finding.depth) return refuse(Refusal::no_depth, no_depth_sentence(finding.problem));
  if (!input.tensor_names.empty()) {
    const std::string problem = mismatch(finding, verdict.reads_encoder, input.tensor_names);
    if (!problem.empty()) return refuse(Refusal::no_depth, no_depth_sentence(problem));
  }
  verdict.verdict = Outcome::runs;
  verdict.refusal = Refusal::none;
  verdict.reason = runs_sentence(verdict, brings_own_python(config) ? family : "");
  return verdict;
}

nlohmann::json list_of(const Media& media) {
  nlohmann::json list = nlohmann::json::array();
  if (media.image) list.push_back("image");
  if (media.video) list.push_back("video");
  if (media.audio) list.push_back("audio");
  return list;
}

}  // namespace

Verdict judge(const nlohmann::json& config, const VerdictInput& input) {
  if (!config.is_object()) throw std::invalid_argument("a model's config must be a JSON object");
  if (input.transformer != nullptr && !input.transformer->is_object())
    throw std::invalid_argument("a transformer's config must be a JSON object");
  return is_diffusers_config(config) ? judge_diffusers(config, input) : judge_transformers(config, input);
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::runs:
      return "runs";
    case Outcome::refused:
      return "refused";
  }
  return "";
}

std::string_view to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "none";
    case Refusal::u_net:
      return "u-net";
    case Refusal::recurrent:
      return "recurrent";
    case Refusal::encoder_alone:
      return "encoder-alone";
    case Refusal::remote_code:
      return "remote-code";
    case Refusal::long_skips:
      return "long-skips";
    case Refusal::no_depth:
      return "no-depth";
    case Refusal::unknown_class:
      return "unknown-class";
  }
  return "";
}

std::string_view to_string(Shape shape) {
  switch (shape) {
    case Shape::autoregressive:
      return "autoregressive";
    case Shape::encoder_memory:
      return "encoder memory";
    case Shape::iterative_refinement:
      return "iterative refinement";
  }
  return "";
}

nlohmann::json to_json(const Verdict& verdict) {
  nlohmann::json json = {{"verdict", to_string(verdict.verdict)},
                         {"refusal", nullptr},
                         {"reason", verdict.reason},
                         {"shape", nullptr},
                         {"depth", nullptr},
                         {"depth_at", nullptr},
                         {"generates", verdict.generates},
                         {"media", list_of(verdict.media)},
                         {"reads_encoder", verdict.reads_encoder},
                         {"recurrent", verdict.recurrent}};
  if (verdict.refusal != Refusal::none) json["refusal"] = to_string(verdict.refusal);
  if (verdict.shape) json["shape"] = to_string(*verdict.shape);
  if (verdict.depth) json["depth"] = *verdict.depth;
  if (!verdict.depth_at.empty()) json["depth_at"] = verdict.depth_at;
  if (!verdict.stacks.empty()) json["stacks"] = verdict.stacks;
  return json;
}

}  // namespace diffuse
