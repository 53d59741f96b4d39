// diffuse check: can this model be split, and can this build run it.

#include <cstdio>

#include "cli/commands.hpp"
#include "cli/model.hpp"
#include "cli/probe.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "pipeline/prepare.hpp"

namespace diffuse {
namespace {

struct CheckFlags {
  std::string model;
  bool json = false;
  bool probe = false;
  std::vector<std::string> accept;
};

std::string media_of(const Media& media) {
  std::string text;
  const auto add = [&](bool reads, const char* name) {
    if (reads) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(media.image, "image");
  add(media.video, "video");
  add(media.audio, "audio");
  return text.empty() ? "text only" : text;
}

void print_line(const char* name, const std::string& value) {
  std::printf("%-16s %s\n", name, value.c_str());
}

// Of a stack that refines: what is cut, what is at the client, what travels.
void print_refinement(const Recipe& recipe) {
  const auto& stack = *recipe.refinement;
  const auto row = static_cast<std::uint64_t>(recipe.hidden) * sizeof(float);
  print_line("is cut", "the transformer, " + std::to_string(recipe.depth()) + " layers");
  print_line("at the client", "the text encoder, " + std::to_string(recipe.encoder->blocks.size()) +
                                  " layers, the scheduler and the codec: on rank 0, or the encoder on a rank "
                                  "that has no layers");
  print_line("travels once", "a text, " + std::to_string(stack.text_rows) + " rows of " + human_bytes(row) +
                                 ", to every rank with layers");
  print_line("travels a pass", "one tensor, " + human_bytes(row) + " a token");
  print_line("makes", stack.defaults.frames == 1 ? "a picture" : "a video");
}

void print_facts(const Examination& examination) {
  const auto& verdict = examination.verdict;
  const auto line = print_line;
  line("verdict", std::string(to_string(verdict.verdict)));
  line("reason", verdict.reason);
  if (verdict.shape) line("shape", std::string(to_string(*verdict.shape)));
  if (verdict.depth) line("depth", std::to_string(*verdict.depth) + "  (" + verdict.depth_at + ")");
  for (const auto& [name, count] : verdict.stacks) line("  of them", std::to_string(count) + " " + name);
  line("generates", verdict.generates ? "yes" : "no");
  line("media", media_of(verdict.media));
  line("reads encoder", verdict.reads_encoder ? "yes" : "no");
  line("recurrent", verdict.recurrent ? "yes" : "no");
  if (!examination.weights) {
    line("this build", "no weights at hand: not judged");
  } else if (examination.recipe) {
    line("this build", examination.missing.empty() ? "can run it" : examination.missing);
    if (examination.recipe->refinement) {
      print_refinement(*examination.recipe);
    } else if (const auto& encoder = examination.recipe->encoder) {
      line("is cut", "the decoder, " + std::to_string(examination.recipe->depth()) + " layers");
      line("at the client", "the encoder, " + std::to_string(encoder->blocks.size()) +
                                " layers: on rank 0, or on a rank that has no layers");
      line("travels once", "the encoder's output, " +
                               human_bytes(static_cast<std::uint64_t>(encoder->hidden) * sizeof(float)) +
                               " a row, to every rank with layers");
    }
    if (const auto& codec = examination.recipe->codec) {
      line("makes", "sound, " + std::to_string(codec->rate) + " Hz, " +
                        (codec->passes * codec->channels == 1 ? "mono" : "stereo") + ", of the codes of " +
                        std::to_string(examination.recipe->codebooks) + " codebooks; the codec is on rank 0");
    }
    for (const auto& note : examination.recipe->notes) line("note", note);
  } else {
    line("this build", examination.missing);
  }
}

// What a run would refuse of the folder's features of sound, and of what its generation_config.json says of
// speech.
void judge_sound(const std::filesystem::path& folder, Examination& examination) {
  if (!examination.recipe || !examination.missing.empty()) return;
  const auto& recipe = *examination.recipe;
  const auto generation = folder / "generation_config.json";
  const bool reads_sound = recipe.encoder && recipe.encoder->vocab == 0;
  try {
    check_features(folder, recipe);
    if (reads_sound && std::filesystem::exists(generation))
      check_speech_config(read_json(generation), recipe, "'" + generation.string() + "'");
  } catch (const Error& problem) {
    if (problem.code() == ExitCode::internal) throw;
    examination.missing = problem.what();
  }
}

int check(const CheckFlags& flags) {
  auto examination = examine(flags.model, flags.accept);
  judge_sound(flags.model, examination);
  const bool planned = examination.recipe.has_value();
  const bool can_run = planned && examination.missing.empty();
  Json json = to_json(examination.verdict);
  if (examination.weights) {
    json["can_run"] = can_run;
    json["missing"] = examination.missing.empty() ? Json() : Json(examination.missing);
    if (can_run) json["notes"] = examination.recipe->notes;
    if (planned && examination.recipe->encoder) {
      json["cut"] = examination.recipe->refinement ? "transformer" : "decoder";
      json["encoder_layers"] = examination.recipe->encoder->blocks.size();
    }
    if (planned && examination.recipe->codec) {
      json["codebooks"] = examination.recipe->codebooks;
      json["codec_rate"] = examination.recipe->codec->rate;
    }
  }
  if (!flags.json) print_facts(examination);
  const bool fine = examination.verdict.verdict == Outcome::runs && (can_run || !examination.weights);
  if (fine && (flags.probe || !flags.accept.empty())) {
    if (!examination.weights)
      throw_missing("--probe runs the model, but '" + flags.model + "' has no weights");
    const auto found = probe(flags.model, flags.accept);
    json["probe"] = to_json(found);
    if (!flags.json) std::printf("%-16s %s\n", "probe", describe(found).c_str());
  }
  if (flags.json) std::printf("%s\n", json.dump(2).c_str());
  return static_cast<int>(fine ? ExitCode::done : ExitCode::refused);
}

}  // namespace

void add_check(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<CheckFlags>();
  auto* command =
      app.add_subcommand("check", "Say whether a model can be split, and whether this build runs it");
  command->add_option("model", flags->model, "Model folder, or a config.json")->required();
  command->add_flag("--json", flags->json, "For programs");
  command->add_flag("--probe", flags->probe,
                    "Run a page of plain English through it: a wrong recipe shows in the perplexity");
  command->add_option("--accept", flags->accept,
                      "Accept a config key that this build does not know; the probe is run");
  command->callback([flags, &chosen] { chosen = [flags] { return check(*flags); }; });
}

}  // namespace diffuse
