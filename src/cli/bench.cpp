// diffuse bench: how fast a model runs here, whole or split (under mpirun).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "cli/bench_pictures.hpp"
#include "cli/commands.hpp"
#include "cli/model.hpp"
#include "cli/processor.hpp"
#include "cli/ranks.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "pipeline/split_run.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

// A window of sound is as long as it is: there is no prompt to measure.
bool reads_sound(const Recipe& recipe) {
  return recipe.encoder && recipe.encoder->vocab == 0;
}

struct BenchFlags {
  ComputeFlags compute;
  std::string streams;  // empty: 1,16, and of pictures 1,2
  PicturePlanFlags pictures;
  std::optional<std::int64_t> prompt;      // 64
  std::optional<std::int64_t> new_tokens;  // 64
  std::optional<std::int64_t> prefill;     // 512
  std::int64_t repeat = 1;
  bool json = false;

  // Throws usage where a flag was given that changes nothing for this model.
  void check_for(const Recipe& recipe) const {
    compute.check_for(recipe);
    const bool sound = reads_sound(recipe);
    if (sound && (prompt || prefill))
      throw_usage(std::string(prompt ? "--prompt" : "--prefill") +
                  " is for prompts of text, and this model reads windows of sound: leave it out");
    if (!recipe.refinement) refuse_for_tokens(!pictures.given().empty(), pictures.given());
    if (!recipe.refinement) return;
    refuse_for_pictures(prompt.has_value(), "--prompt");
    refuse_for_pictures(new_tokens.has_value(), "--new-tokens");
    refuse_for_pictures(prefill.has_value(), "--prefill");
  }
};

// Ids that no cache or shortcut can profit from, the same on every run. Where the model reads an encoder,
// that one is given the prompt, or as many frames as it takes, and the answer starts with a single id.
std::vector<Sequence> made_up(std::int64_t count, std::int64_t prompt, std::int64_t new_tokens,
                              const Recipe& recipe) {
  std::vector<Sequence> sequences;
  std::uint32_t state = 12345;
  const auto id_below = [&](std::int64_t vocab) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocab));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    auto& sequence = sequences.emplace_back();
    sequence.max_new_tokens = std::min(new_tokens, recipe.max_positions - (recipe.encoder ? 1 : prompt));
    sequence.sampling.request = i;
    if (!recipe.encoder) {
      for (std::int64_t t = 0; t < prompt; ++t) sequence.prompt.push_back(id_below(recipe.vocab));
      continue;
    }
    auto input = std::make_shared<EncoderInput>();
    if (const auto* frames = std::get_if<FramesFront>(&recipe.encoder->front)) {
      input->frames.resize(static_cast<std::size_t>(frames->frames * frames->features));
      for (auto& value : input->frames) value = static_cast<float>(id_below(1 << 16)) / (1 << 15) - 1;
    } else {
      for (std::int64_t t = 0; t < prompt; ++t) input->ids.push_back(id_below(recipe.encoder->vocab));
    }
    if (recipe.codec) sequence.sampling.codebooks = static_cast<std::int32_t>(recipe.codebooks);
    for (std::int64_t book = 0; book < recipe.codebooks; ++book)
      sequence.prompt.push_back(id_below(recipe.vocab / recipe.codebooks));
    sequence.memory_rows = memory_rows(*recipe.encoder, *input);
    sequence.input = [input] { return input; };
  }
  return sequences;
}

struct Measured {
  double prefill_seconds = 0;  // until every sequence had its first token
  double decode_seconds = 0;   // the rest
  std::uint64_t decoded = 0;   // tokens sampled in it
  std::vector<double> busy;    // a stage
};

Measured measure(SplitRun& split, const std::vector<Sequence>& sequences, const RunOptions& options) {
  Measured measured;
  std::vector<std::uint8_t> begun(sequences.size(), 0);
  std::size_t waiting = sequences.size();
  const auto start = Clock::now();
  auto all_begun = start;
  const auto report = split.run(sequences, options,
                                {.on_chosen =
                                     [&](std::size_t sequence, std::span<const ChosenToken> chosen) {
                                       if (waiting == 0) ++measured.decoded;
                                       if (begun[sequence] == 0) {
                                         begun[sequence] = 1;
                                         if (--waiting == 0) all_begun = Clock::now();
                                       }
                                       return Decision{.codes = chosen.front().codes};
                                     },
                                 .on_done = [](std::size_t, std::vector<std::uint64_t>, std::int64_t) {}});
  const auto end = Clock::now();
  measured.prefill_seconds = std::chrono::duration<double>(all_begun - start).count();
  measured.decode_seconds = std::chrono::duration<double>(end - all_begun).count();
  const double wall = std::chrono::duration<double>(end - start).count();
  for (const auto& stage : report.stages)
    measured.busy.push_back(static_cast<double>(stage.busy_ns) * 1e-9 / wall);
  return measured;
}

// The best of `repeat` runs: the machine's noise only ever adds.
class Bench {
 public:
  Bench(const BenchFlags& flags, Ranks& ranks) : flags_(flags), ranks_(ranks) {}

  int run() {
    const auto model = ranks_.together("opening the model", [&] {
      return open_model(flags_.compute.model, flags_.compute.load_mode(), flags_.compute.accept);
    });
    const auto plan = ranks_.together("planning the slices", [&] {
      flags_.check_for(model.recipe);
      return make_plan(model.recipe, model.checkpoint.headers(), ranks_.size(), flags_.compute.slices,
                       flags_.compute.copies());
    });
    auto processor = make_processor(flags_.compute, ranks_);
    measure_all(model, plan, processor);
    processor.close();
    return 0;
  }

 private:
  void measure_all(const Model& model, const Plan& plan, const Processor& processor) {
    auto& backend = *processor.backend;
    SplitRun split(model.recipe, model.checkpoint, plan, ranks_.transport(), backend, ranks_.log());
    const bool pictures = model.recipe.refinement.has_value();
    const std::string counts = !flags_.streams.empty() ? flags_.streams : pictures ? "1,2" : "1,16";
    const auto streams =
        ranks_.together("reading --streams", [&] { return parse_list(counts, 1, "--streams"); });
    const auto prefill = reads_sound(model.recipe) || pictures ? 0 : flags_.prefill.value_or(512);
    const auto runs = flags_.repeat * static_cast<std::int64_t>(streams.size() + (prefill > 0 ? 1 : 0));
    if (!ranks_.root()) {
      for (std::int64_t i = 0; i < runs; ++i) split.follow();
      return;
    }
    auto options = flags_.compute.run_options();
    options.kv_pages =
        kv_budget(model.recipe, plan, backend, kv_bytes(flags_.compute, ranks_, processor, model, plan));
    report_load(split, plan, backend);
    if (prefill > 0) {
      double best = 0;
      for (std::int64_t i = 0; i < flags_.repeat; ++i) {
        const auto measured = measure(split, made_up(1, prefill, 1, model.recipe), options);
        best = std::max(best, static_cast<double>(prefill) / measured.prefill_seconds);
      }
      row("prefill, " + std::to_string(prefill) + " tokens", "tokens", best, {});
    }
    const auto rate_of = [&](std::int64_t count) -> std::pair<double, std::vector<double>> {
      if (pictures) {
        auto measured = measure_pictures(split, model, count, flags_.pictures, options);
        return {measured.steps_per_second, std::move(measured.busy)};
      }
      auto measured = measure(
          split, made_up(count, flags_.prompt.value_or(64), flags_.new_tokens.value_or(64), model.recipe),
          options);
      return {static_cast<double>(measured.decoded) / measured.decode_seconds, std::move(measured.busy)};
    };
    for (const auto count : streams) {
      double best = 0;
      std::vector<double> busy;
      for (std::int64_t i = 0; i < flags_.repeat; ++i) {
        auto [rate, shares] = rate_of(count);
        if (rate > best) {
          best = rate;
          busy = std::move(shares);
        }
      }
      const std::string what = pictures ? "refining, " : "decode, ";
      const std::string of = pictures ? " request" : " stream";
      row(what + std::to_string(count) + of + (count == 1 ? "" : "s"), pictures ? "steps" : "tokens", best,
          busy);
    }
    if (flags_.json) std::printf("%s\n", json_.dump(2).c_str());
  }

  void report_load(const SplitRun& split, const Plan& plan, const Backend& backend) {
    std::uint64_t bytes = 0;
    double seconds = 0;
    for (const auto& load : split.loads()) {
      bytes += load.bytes_read;
      seconds = std::max(seconds, load.seconds);
    }
    json_ = {{"ranks", ranks_.size()},   {"threads", flags_.compute.threads},
             {"slices", plan.slices()},  {"compute", backend.compute() == Compute::bf16 ? "bf16" : "f32"},
             {"simd", backend.target()}, {"load_seconds", seconds},
             {"bytes_read", bytes},      {"figures", Json::array()}};
    if (flags_.json) return;
    std::printf("%d ranks x %d threads, %s, %s, slices %s\n", ranks_.size(), flags_.compute.threads,
                backend.compute() == Compute::bf16 ? "bf16" : "f32", backend.target().c_str(),
                plan.slices().c_str());
    std::printf("load  %s in %s s\n", human_bytes(bytes).c_str(), fixed(seconds, 2).c_str());
  }

  void row(const std::string& what, const std::string& of, double per_second,
           const std::vector<double>& busy) {
    json_["figures"].push_back({{"what", what}, {of + "_per_second", per_second}, {"busy", busy}});
    if (flags_.json) return;
    std::printf("%-24s %9s %s/s", what.c_str(), fixed(per_second, of == "steps" ? 3 : 1).c_str(), of.c_str());
    if (busy.size() > 1) {
      std::printf("  stages");
      for (const auto share : busy) std::printf(" %s%%", fixed(100 * share, 0).c_str());
      std::printf(" busy");
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  BenchFlags flags_;
  Ranks& ranks_;
  Json json_;
};

}  // namespace

void add_bench(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<BenchFlags>();
  auto* command = app.add_subcommand("bench", "Measure load, prefill and decode; under mpirun, of the split");
  command->add_option("folder", flags->compute.model, "Model folder")->required();
  flags->compute.add_to(*command);
  command->remove_option(command->get_option("--model"));
  command->add_option("--streams", flags->streams, "Requests at once, e.g. 1,16 (of pictures: 1,2)");
  flags->pictures.add_to(*command);
  command->add_option("--prompt", flags->prompt, "Tokens of each prompt (default: 64)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--new-tokens", flags->new_tokens, "Tokens decoded of each (default: 64)")
      ->check(CLI::Range(2, 1 << 20));
  command
      ->add_option("--prefill", flags->prefill, "Tokens of the prefill measurement (default: 512); 0: none")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--repeat", flags->repeat, "Runs of each; the best counts")->check(CLI::Range(1, 1000));
  command->add_flag("--json", flags->json, "For programs");
  command->callback([flags, &chosen] {
    chosen = [flags] {
      return with_ranks(flags->compute.timeout, [&](Ranks& ranks) { return Bench(*flags, ranks).run(); });
    };
  });
}

}  // namespace diffuse
