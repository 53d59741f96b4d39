// diffuse plan: which rank would hold what, and what that costs.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/model.hpp"
#include "cli/plan_pictures.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "schedule/simulator.hpp"
#include "slice/device_bytes.hpp"
#include "slice/plan.hpp"
#include "text/codebook_sampling.hpp"
#include "text/generate_options.hpp"

namespace diffuse {
namespace {

struct PlanFlags {
  std::string model;
  std::int32_t ranks = 1;
  std::string slices;
  std::string encoders = "auto";
  std::string device = "cpu";
  std::string compute;  // empty: the device's default
  bool json = false;
  bool simulate = false;
  std::optional<std::int64_t> given_requests;  // 32
  std::optional<std::int64_t> given_prompt;    // 128
  std::optional<std::int64_t> given_new_tokens;
  std::vector<std::string> accept;
  PicturePlanFlags pictures;

  std::int64_t requests() const { return given_requests.value_or(32); }
  std::int64_t prompt() const { return given_prompt.value_or(128); }
  std::int64_t new_tokens() const { return given_new_tokens.value_or(128); }

  // Throws usage where a flag was given that changes nothing.
  void check_for(const Recipe& recipe) const {
    check_encoders(encoders, recipe);
    if (!simulate && (given_requests || given_prompt || given_new_tokens))
      throw_usage(
          "--requests, --prompt and --new-tokens say what is simulated; say --simulate too, or leave them "
          "out");
    if (recipe.refinement) {
      refuse_for_pictures(given_prompt.has_value(), "--prompt");
      refuse_for_pictures(given_new_tokens.has_value(), "--new-tokens");
    } else {
      // Guidance is of pictures and of sound.
      const auto given = pictures.given(recipe.codec.has_value());
      refuse_for_tokens(!given.empty(), given);
    }
  }

  // Rows of a position of music: with guidance a second one beside it. As a job that says none has it.
  std::int32_t branches(const GenerationConfig& generation) const {
    const auto scale = pictures.guidance < 0 ? generation.guidance_scale.value_or(1) : pictures.guidance;
    return is_guided(scale) ? 2 : 1;
  }
};

std::string ends_of(const RankSlice& slice) {
  if (slice.idle()) return slice.encoder ? "encoder" : "idle";
  std::string ends;
  const auto add = [&](bool has, const char* name) {
    if (has) ends += (ends.empty() ? "" : ", ") + std::string(name);
  };
  add(slice.encoder, "encoder");
  add(slice.front, "front");
  add(slice.back, "back");
  return ends;
}

// What is cut, where the encoder is, and what travels once.
void print_encoder(const Recipe& recipe, const Plan& plan) {
  if (!recipe.encoder) return;
  const auto& encoder = *recipe.encoder;
  const bool several = plan.encoders.size() > 1;
  const auto row = static_cast<std::uint64_t>(encoder.hidden) * sizeof(float);
  std::string what = human_bytes(row) + " a token of its prompt";
  if (encoder.vocab == 0)
    what = human_bytes(row * static_cast<std::uint64_t>(encoder.max_positions)) + " a window of sound";
  std::printf(
      "The decoder's %lld layers are cut. The encoder (%zu layers, never cut) runs on rank%s %s%s; its "
      "output, "
      "%s, travels once a request to every rank with layers.\n",
      static_cast<long long>(recipe.depth()), encoder.blocks.size(), several ? "s" : "",
      plan.encoders_text().c_str(),
      several ? ", a copy on each: what is encoded is shared between them, request by request" : "",
      what.c_str());
}

std::uint64_t codec_bytes(const SoundCodec& codec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors_of(codec)) bytes += checkpoint.bytes_of(tensor);
  return bytes;
}

std::string layers_of(const RankSlice& slice) {
  return slice.idle() ? "-" : std::to_string(slice.first_layer) + "-" + std::to_string(slice.end_layer - 1);
}

DeviceKind device_of(const PlanFlags& flags) {
  const bool cuda = flags.device == "cuda";
  const bool bf16 = flags.compute.empty() ? cuda : flags.compute == "bf16";
  return {.cuda = cuda, .compute = bf16 ? Compute::bf16 : Compute::f32};
}

std::string name_of(Compute compute) {
  return compute == Compute::bf16 ? "bf16" : "f32";
}

// Bytes of keys and values that one position takes on a rank.
std::uint64_t kv_bytes_of(const Recipe& recipe, const RankSlice& slice, Compute compute) {
  const std::uint64_t element = compute == Compute::bf16 ? 2 : sizeof(float);
  std::uint64_t bytes = 0;
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    bytes +=
        static_cast<std::uint64_t>(kv_elements(recipe.blocks[static_cast<std::size_t>(layer)])) * element;
  }
  return bytes;
}

// Sequences that decode together share a step's time, so that a token costs that much less than a step.
constexpr double kEncoded = 16;

// Times are in units of the costliest stage's time to read its weights; a row more costs what the default
// model says.
SimulationReport simulate_plan(const PlanFlags& flags, const Recipe& recipe, const Plan& plan,
                               std::int32_t branches) {
  double largest = 0;
  for (const auto& slice : plan.ranks) {
    if (!slice.idle()) largest = std::max(largest, slice.cost - slice.encoder_cost);
  }
  ScheduleConfig config;
  config.stages = plan.stages;
  config.page_tokens = kPageTokens;
  config.kv_pages = flags.requests() * ((flags.prompt() + flags.new_tokens()) / kPageTokens + 1);
  SimulationConfig simulation;
  simulation.hop_seconds = config.cost.hop;
  for (const auto& slice : plan.ranks) {
    const double share = (slice.cost - slice.encoder_cost) / largest;
    if (!slice.idle()) simulation.stages.push_back({share * config.cost.step, share * config.cost.row});
  }
  SequenceNeed need{flags.prompt(), flags.new_tokens()};
  if (recipe.encoder) {
    // The prompt is the encoder's, or it is a whole window; the answer starts with one token.
    const auto rows = recipe.encoder->vocab == 0 ? recipe.encoder->max_positions : flags.prompt();
    need = {1, flags.new_tokens(), rows};
    double share = 0;
    for (const auto& slice : plan.ranks) share += slice.encoder_cost / largest;
    simulation.encoders.assign(plan.encoders.begin(), plan.encoders.end());
    config.encoders = plan.encoders;
    simulation.encode.step = 0;
    simulation.encode.row =
        share * static_cast<double>(flags.new_tokens()) / static_cast<double>(rows) / kEncoded;
    need.lanes = branches;
    need.guided = branches > 1;
    config.most_lanes = branches;
    config.kv_pages = flags.requests() * pages_needed(need, kPageTokens);
  }
  const std::vector<SequenceNeed> needs(static_cast<std::size_t>(flags.requests()), need);
  AutoregressivePolicy policy(config, needs);
  return simulate(simulation, bind_policy(policy), [](std::size_t, std::int64_t) { return false; });
}

// ", in 3 patches, the first 9 and the last 2 steps whole".
std::string patches_text(const PicturePlan& pictures) {
  const auto& cut = pictures.patches;
  if (cut.patches == 1) return {};
  const auto last = cut.whole_last > 0 ? " and the last " + std::to_string(cut.whole_last) : std::string();
  return ", in " + std::to_string(cut.patches) + " patches, the first " + std::to_string(cut.whole_first) +
         last + " steps whole";
}

int plan(const PlanFlags& flags) {
  const auto model = open_model(flags.model, LoadMode::mmap, flags.accept);
  flags.check_for(model.recipe);
  const auto plan = make_plan(model.recipe, model.checkpoint.headers(), flags.ranks, flags.slices,
                              encoder_copies(flags.encoders));
  const auto device = device_of(flags);
  Json json = to_json(plan);
  json["device"] = flags.device;
  json["compute"] = name_of(device.compute);
  if (model.recipe.encoder) {
    json["cut"] = "decoder";
    json["encoder_layers"] = model.recipe.encoder->blocks.size();
    json["memory_row_bytes"] = static_cast<std::uint64_t>(model.recipe.encoder->hidden) * sizeof(float);
  }
  const auto weights_of = [&](const RankSlice& slice) {
    return device_bytes(model.recipe, model.checkpoint.headers(), slice, device);
  };
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const auto& slice = plan.ranks[rank];
    json["ranks"][rank]["kv_bytes_per_token"] = kv_bytes_of(model.recipe, slice, device.compute);
    json["ranks"][rank]["device_bytes"] = weights_of(slice);
  }
  const auto& codec = model.recipe.codec;
  const auto sound_bytes = codec ? codec_bytes(*codec, model.checkpoint) : 0;
  if (codec) {
    json["codebooks"] = model.recipe.codebooks;
    json["codec"] = {{"rank", 0},
                     {"rate", codec->rate},
                     {"channels", codec->passes * codec->channels},
                     {"bytes", sound_bytes}};
  }
  std::optional<PicturePlan> pictures;
  if (model.recipe.refinement) {
    pictures = plan_pictures(model.recipe, plan, flags.pictures, device.compute);
    json["cut"] = "transformer";
    json["pictures"] = to_json(*pictures);
  }
  const auto branches = codec ? flags.branches(read_generation_config(model.folder)) : 1;
  if (codec) json["branches"] = branches;
  std::optional<SimulationReport> simulated;
  if (flags.simulate && pictures) {
    simulated = simulate_pictures(plan, *pictures, flags.requests());
    json["simulated"] = {{"requests", flags.requests()},
                         {"steps", pictures->steps},
                         {"branches", pictures->branches},
                         {"patches", pictures->patches.patches},
                         {"whole_first", pictures->patches.whole_first},
                         {"whole_last", pictures->patches.whole_last},
                         {"utilisation", simulated->utilisation}};
  } else if (flags.simulate) {
    simulated = simulate_plan(flags, model.recipe, plan, branches);
    json["simulated"] = {{"requests", flags.requests()},     {"prompt", flags.prompt()},
                         {"new_tokens", flags.new_tokens()}, {"branches", branches},
                         {"duration", simulated->makespan},  {"utilisation", simulated->utilisation}};
  }
  if (simulated && !simulated->problems.empty())
    throw_internal("simulating the schedule: " + simulated->problems.front());
  if (flags.json) {
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  double total = 0;
  for (const auto& slice : plan.ranks) total += slice.cost;
  std::printf("%-5s %-9s %-14s %14s %16s %9s %14s\n", "rank", "layers", "ends", "weights read",
              "in its memory", "cost", "cache a token");
  for (const auto& slice : plan.ranks) {
    std::printf("%-5d %-9s %-14s %14s %16s %8s%% %14s\n", slice.rank, layers_of(slice).c_str(),
                ends_of(slice).c_str(), human_bytes(slice.weight_bytes).c_str(),
                human_bytes(weights_of(slice)).c_str(),
                fixed(total > 0 ? 100 * slice.cost / total : 0, 1).c_str(),
                human_bytes(kv_bytes_of(model.recipe, slice, device.compute)).c_str());
  }
  std::printf("Memory is that of --device %s --compute %s.\n", flags.device.c_str(),
              name_of(device.compute).c_str());
  if (pictures) {
    print(*pictures, model.recipe);
  } else {
    print_encoder(model.recipe, plan);
  }
  if (codec) {
    std::printf("The codec (%s), which turns the codes of %lld codebooks into sound, is on rank 0.\n",
                human_bytes(sound_bytes).c_str(), static_cast<long long>(model.recipe.codebooks));
    if (branches > 1)
      std::printf("With guidance a position has %d rows: each of them takes the cache that a token takes.\n",
                  branches);
  }
  for (const auto& tensor : plan.shared)
    std::printf("'%s' serves all layers: each slice loads it.\n", tensor.c_str());
  if (model.recipe.back.tied && plan.stages > 1)
    std::printf("The head is the embedding table: the first and the last slice both hold it.\n");
  if (simulated) {
    if (pictures) {
      std::printf("Simulated with %lld requests of %lld steps, %d branches each%s: stages",
                  static_cast<long long>(flags.requests()), static_cast<long long>(pictures->steps),
                  pictures->branches, patches_text(*pictures).c_str());
    } else {
      std::printf("Simulated with %lld requests of %lld + %lld tokens: stages",
                  static_cast<long long>(flags.requests()), static_cast<long long>(flags.prompt()),
                  static_cast<long long>(flags.new_tokens()));
    }
    for (const auto busy : simulated->utilisation) std::printf(" %s %%", fixed(100 * busy, 1).c_str());
    std::printf(" busy.\n");
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<PlanFlags>();
  auto* command = app.add_subcommand("plan", "Show the slices for a number of ranks");
  command->add_option("model", flags->model, "Model folder")->required();
  command->add_option("--ranks", flags->ranks, "Number of ranks")->required()->check(CLI::Range(1, 1 << 20));
  command->add_option("--slices", flags->slices,
                      "Layers of each rank, e.g. 0-7,8-23 (default: balanced by cost)");
  add_encoders(*command, flags->encoders);
  command->add_option("--device", flags->device, "What the ranks compute on: cpu, cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--compute", flags->compute, "f32 or bf16 (default: f32 on the CPU, bf16 on a card)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_flag("--json", flags->json, "For programs");
  command->add_flag("--simulate", flags->simulate, "Simulate the schedule: how busy each stage would be");
  command->add_option("--requests", flags->given_requests, "Requests at once, for --simulate (default: 32)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--prompt", flags->given_prompt, "Tokens of each prompt, for --simulate (default: 128)")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--new-tokens", flags->given_new_tokens,
                   "Tokens of each answer, for --simulate (default: 128)")
      ->check(CLI::Range(1, 1 << 20));
  flags->pictures.add_to(*command);
  command->add_option("--accept", flags->accept, "Accept a config key that this build does not know");
  command->callback([flags, &chosen] { chosen = [flags] { return plan(*flags); }; });
}

}  // namespace diffuse
