// diffuse verify: the whole run and every split asked for, in one mpirun, and whether they say the same.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/commands.hpp"
#include "cli/places.hpp"
#include "cli/provenance.hpp"
#include "cli/run_job.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "job/job_file.hpp"
#include "job/merge.hpp"
#include "job/result_file.hpp"
#include "verify/compare.hpp"
#include "verify/patched.hpp"
#include "verify/report.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;

struct VerifyFlags {
  std::string job;
  std::string report;
  ComputeFlags compute;
  std::string ranks;  // empty: 2 .. the ranks there are
  std::int64_t reference_ranks = 1;
  std::string against;  // "cpu": the whole run there too
  std::string patches;  // empty: none
  PictureFlags pictures;
  bool flip = false;
};

// Best log-probabilities that tell how close two tokens were.
constexpr std::int32_t kBest = 5;

constexpr std::array<const char*, 3> kEndings = {".md", ".json", ".h5"};

// REPORT.md, REPORT.json and REPORT.h5 beside each other, whatever ending was given.
fs::path with_ending(const std::string& report, const std::string& ending) {
  fs::path path(report);
  const auto given = path.extension();
  if (given == ".md" || given == ".json" || given == ".h5") path.replace_extension();
  path += ending;
  return path;
}

// "9 whole, 2 at the end, "
std::string whole_steps_text(const PatchFlags& flags) {
  if (flags.whole_share) return "a fifth and one whole, at the end too from forty steps on, ";
  const auto& [patches, first, last] = flags.settings;
  return std::to_string(first) + " whole, " +
         (last > 0 ? std::to_string(last) + " at the end, " : std::string());
}

// What patches change is measured by pixels, whatever the job wants back.
void ask_for_frames(PreparedJob& job) {
  if (auto* pictures = std::get_if<PictureJob>(&job))
    for (auto& request : pictures->requests) request.output.frames = true;
}

class Verifier {
 public:
  Verifier(const VerifyFlags& flags, Ranks& ranks, const std::vector<std::string>& command_line)
      : flags_(flags), ranks_(ranks), command_line_(command_line) {}

  int run() {
    if (ranks_.root()) {
      for (const auto* ending : kEndings) {
        check_place(with_ending(flags_.report, ending));
        check_apart(with_ending(flags_.report, ending), flags_.job);
      }
      job_ = read_job(flags_.job);
    }
    if (ranks_.root() && flags_.compute.model.empty() && job_.model.empty())
      throw_usage("the job names no model; say --model DIR");
    const auto folder = ranks_.broadcast(flags_.compute.model.empty() ? job_.model : flags_.compute.model,
                                         "the model's folder; rank 0 reads the job first");
    model_.emplace(ranks_.together("opening the model", [&] {
      return open_model(folder, flags_.compute.load_mode(), flags_.compute.accept);
    }));
    const auto patches = ranks_.together("reading --patches", [&] { return patches_asked_for(); });
    auto other = flags_.compute;
    processor_ = make_processor(flags_.compute, ranks_);
    if (!flags_.against.empty()) make_other(std::move(other));
    const auto splits =
        ranks_.together("reading which splits are asked for", [&] { return splits_asked_for(); });
    prepare_requests(splits);

    const auto compared = ranks_.together("reading --ranks", [&] { return splits_to_compare(splits); });

    const auto reference = run_split(flags_.reference_ranks, {}, false);
    start_report(reference);
    if (!flags_.against.empty()) compare_devices();
    Result last = reference.second.result;
    bool flip = flags_.flip;
    for (const auto count : compared) {
      auto split = run_split(count, flags_.compute.slices, flip);
      flip = false;
      if (!ranks_.root()) continue;
      const auto comparison = compare(reference.second.result, split.second.result);
      report_.rows.push_back(make_row(split.first, comparison));
      ranks_.log().line(std::to_string(count) + " ranks, slices " + split.first.slices + ": " +
                        diffuse::verdict(comparison));
      last = std::move(split.second.result);
    }
    for (const auto each : patches) {
      for (const auto count : splits) measure_patches(reference.second.result, count, each);
    }
    const int code = ranks_.root() ? write(std::move(last)) : 0;
    other_.close();
    processor_.close();
    return code;
  }

 private:
  using Run = std::pair<RunFigures, JobOutcome>;

  // The processor that the cards are held against, in their compute mode.
  void make_other(ComputeFlags flags) {
    ranks_.together("reading --against", [&] {
      if (processor_.backend->name() == flags_.against)
        throw_usage("--against " + flags_.against + ": the ranks compute on the CPU themselves, where " +
                    "whole and split are compared bit for bit");
      return true;
    });
    flags.device = flags_.against;
    flags.transport = "auto";
    flags.compute = processor_.backend->compute() == Compute::bf16 ? "bf16" : "f32";
    other_flags_ = std::move(flags);
    other_ = make_processor(other_flags_, ranks_);
  }

  // Both whole, with the best log-probabilities of every token.
  void compare_devices() {
    auto judged = prepared_;
    if (auto* tokens = std::get_if<TokenJob>(&judged))
      for (auto& request : tokens->requests)
        request.options.sampling.logprobs = std::max(request.options.sampling.logprobs, kBest);
    const auto on = [&](const Processor& processor, const ComputeFlags& flags) {
      return run_plan(plan_of(1, {}), {.processor = processor, .flags = flags, .requests = judged}, false);
    };
    const auto theirs = on(other_, other_flags_);
    const auto ours = on(processor_, flags_.compute);
    if (!ranks_.root()) return;
    report_.across = make_across(theirs.first, compare(theirs.second.result, ours.second.result));
    ranks_.log().line(diffuse::verdict(*report_.across));
  }

  std::vector<std::int64_t> patches_asked_for() const {
    auto patches =
        flags_.patches.empty() ? std::vector<std::int64_t>() : parse_list(flags_.patches, 1, "--patches");
    for (const auto each : patches)
      if (each > kMostPatches)
        throw_usage("--patches " + std::to_string(each) + ": at most " + std::to_string(kMostPatches));
    std::erase(patches, 1);  // one patch is the whole, and the splits are held against it
    flags_.compute.check_for(model_->recipe);
    auto pictures = flags_.pictures;
    pictures.check_for(model_->recipe);
    for (const auto each : patches) {
      pictures.patches = static_cast<std::int32_t>(each);
      pictures.check_for(model_->recipe);
    }
    static_cast<void>(pictures.patch_flags());  // refuses what is said of patches where there are none
    return patches;
  }

  // Pictures cut into patches, against the whole run.
  void measure_patches(const Result& whole, std::int64_t count, std::int64_t patches) {
    auto pictures = flags_.pictures;
    pictures.patches = static_cast<std::int32_t>(patches);
    const auto flags = pictures.patch_flags();
    PreparedJob job;
    if (ranks_.root()) {
      job = prepare_job(job_, *model_, kv_pages_,
                        {.patches = flags, .max_error = {}, .tile = flags_.pictures.tile});
      ask_for_frames(job);
    }
    const auto run = run_plan(plan_of(count, flags_.compute.slices),
                              {.processor = processor_, .flags = flags_.compute, .requests = job}, false);
    if (!ranks_.root()) return;
    report_.patched.push_back({.ranks = count,
                               .patches = most_patches(std::get<PictureJob>(job).requests, flags),
                               .settings = whole_steps_text(flags) + flags_.pictures.carried_on(),
                               .error = pixel_error(whole, run.second.result),
                               .seconds = run.first.seconds,
                               .busy = run.first.busy});
  }

  std::vector<std::int64_t> splits_asked_for() const {
    const auto size = static_cast<std::int64_t>(ranks_.size());
    std::vector<std::int64_t> splits;
    if (flags_.ranks.empty()) {
      for (std::int64_t count = 2; count <= size; ++count) splits.push_back(count);
    } else {
      splits = parse_list(flags_.ranks, 1, "--ranks");
    }
    for (const auto count : splits) {
      if (count > size)
        throw_usage("--ranks " + std::to_string(count) + ": mpirun started only " + std::to_string(size) +
                    " ranks");
    }
    if (splits.empty()) throw_usage("a split needs ranks: start it with mpirun -n 2 or more, or say --ranks");
    if (flags_.reference_ranks > size) throw_usage("--reference-ranks is more than mpirun started");
    return splits;
  }

  // The reference run again would be the same whatever splitting does: such a split says nothing.
  std::vector<std::int64_t> splits_to_compare(std::vector<std::int64_t> splits) const {
    const auto same = [&](const Plan& plan) {
      const auto reference = plan_of(flags_.reference_ranks, {});
      return plan.stages == reference.stages && plan.slices() == reference.slices();
    };
    const auto asked = splits;
    std::erase_if(splits, [&](std::int64_t count) { return same(plan_of(count, flags_.compute.slices)); });
    if (splits.empty() && flags_.patches.empty() && flags_.against.empty())
      throw_usage("every split asked for is the reference itself, " +
                  plan_of(asked.front(), flags_.compute.slices).slices() +
                  "; say other --ranks, --slices or --reference-ranks");
    if (splits.empty() && flags_.flip)
      throw_usage("--flip-bit: there is no split to flip a bit in; say --ranks 2 or more");
    return splits;
  }

  // A plan of `count` stages; the ranks beyond them idle.
  Plan plan_of(std::int64_t count, const std::string& slices) const {
    auto plan = make_plan(model_->recipe, model_->checkpoint.headers(), static_cast<std::int32_t>(count),
                          slices, flags_.compute.copies());
    for (auto rank = static_cast<std::int32_t>(count); rank < ranks_.size(); ++rank) {
      RankSlice idle;
      idle.rank = rank;
      plan.ranks.push_back(std::move(idle));
    }
    return plan;
  }

  void prepare_requests(const std::vector<std::int64_t>& splits) {
    // The whole run has the least room: all layers' keys and values lie on one rank.
    kv_pages_ = ranks_.together("sharing out the memory of keys and values", [&] {
      const auto pages = [&](const Plan& plan) {
        return kv_pages_of(flags_.compute, ranks_, processor_, *model_, plan);
      };
      auto least = pages(plan_of(flags_.reference_ranks, {}));
      for (const auto count : splits) least = std::min(least, pages(plan_of(count, flags_.compute.slices)));
      if (other_.backend) {
        const auto whole = plan_of(1, {});
        least = std::min({least, pages(whole), kv_pages_of(other_flags_, ranks_, other_, *model_, whole)});
      }
      return least;
    });
    if (!ranks_.root()) return;
    prepared_ =
        prepare_job(job_, *model_, kv_pages_, {.patches = {}, .max_error = {}, .tile = flags_.pictures.tile});
    if (!patches_asked_for().empty()) ask_for_frames(prepared_);
    tell_notes(prepared_, model_->recipe, ranks_.log());
  }

  // What a run is made on.
  struct Setting {
    const Processor& processor;
    const ComputeFlags& flags;
    const PreparedJob& requests;
  };

  Run run_split(std::int64_t count, const std::string& slices, bool flip) {
    return run_plan(plan_of(count, slices),
                    {.processor = processor_, .flags = flags_.compute, .requests = prepared_}, flip);
  }

  Run run_plan(const Plan& plan, const Setting& on, bool flip) {
    auto options = flags_.compute.run_options();
    options.kv_pages = kv_pages_;
    options.trace = true;
    if (flip) options.flip = FlipBit{.step = 1, .row = 0};
    auto outcome = run_job(ranks_, *on.processor.backend, on.flags, *model_, plan, on.requests, options,
                           command_line_, job_.sha256, {});
    RunFigures figures;
    figures.ranks = plan.stages;
    figures.slices = plan.slices();
    figures.threads = on.flags.threads;
    figures.groups = outcome.groups;
    figures.seconds = outcome.run_seconds;
    figures.tokens_per_second = outcome.tokens_per_second;
    figures.busy = outcome.busy;
    return {figures, std::move(outcome)};
  }

  void start_report(const Run& reference) {
    if (!ranks_.root()) return;
    const auto& provenance = reference.second.result.provenance;
    report_.model = model_->folder.string();
    report_.tensors_sha256 = provenance.at(std::string(provenance_key::kTensors)).get<std::string>();
    report_.shape = model_->recipe.shape;
    report_.depth = model_->recipe.depth();
    report_.compute_mode = provenance.at(std::string(provenance_key::kCompute)).get<std::string>();
    report_.simd_target = processor_.backend->target();
    report_.hosts = ranks_.hosts();
    const Json made_with = versions(ranks_);
    for (const auto& [name, version] : made_with.items()) report_.versions[name] = version.get<std::string>();
    report_.reference = reference.first;
  }

  int write(Result last) {
    const auto markdown = to_markdown(report_);
    const auto json = to_json(report_);
    std::fputs(markdown.c_str(), stdout);  // before what may fail
    std::fflush(stdout);
    for (const auto* ending : kEndings)
      if (const auto kept = keep_earlier(with_ending(flags_.report, ending))) ranks_.log().line(*kept);
    write_text(with_ending(flags_.report, ".md"), markdown);
    write_text(with_ending(flags_.report, ".json"), json.dump(2) + "\n");
    last.verification = json;
    write_result(with_ending(flags_.report, ".h5"), last);
    const auto bad = tell_of_bad(last, ranks_.log());
    if (!passed(report_)) return static_cast<int>(ExitCode::difference);
    return static_cast<int>(bad > 0 ? ExitCode::bad_data : ExitCode::done);
  }

  static void write_text(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) throw_errno("writing the report '" + path.string() + "'");
  }

  VerifyFlags flags_;
  Ranks& ranks_;
  const std::vector<std::string>& command_line_;
  Job job_;
  std::optional<Model> model_;
  Processor processor_;
  Processor other_;           // with --against
  ComputeFlags other_flags_;  // with --against
  PreparedJob prepared_;
  std::int64_t kv_pages_ = 0;
  VerificationReport report_;
};

}  // namespace

void add_verify(CLI::App& app, ChosenCommand& chosen, const std::vector<std::string>& command_line) {
  auto flags = std::make_shared<VerifyFlags>();
  auto* command = app.add_subcommand("verify", "Run a job whole and split, and compare bit for bit");
  command->add_option("job", flags->job, "Job file")->required();
  command->add_option("-o,--output", flags->report, "Report: REPORT.md, .json and .h5 are written")
      ->required();
  command->add_option("--ranks", flags->ranks, "Splits to check, e.g. 2,3,4 (default: 2 to all ranks)");
  command
      ->add_option("--reference-ranks", flags->reference_ranks,
                   "Ranks of the run to compare with (default: 1, the whole)")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--against", flags->against,
                   "Run the whole on the CPU too, and hold the cards against it within tolerances")
      ->check(CLI::IsMember({"cpu"}));
  command->add_flag("--flip-bit", flags->flip,
                    "Flip one bit between two ranks in the first split, to see it found");
  command->add_option(
      "--patches", flags->patches,
      "Cut pictures into patches too, e.g. 2,4,16, and measure how far they are from the whole");
  flags->pictures.add_steps_to(*command);
  flags->compute.add_to(*command);
  command->callback([flags, &chosen, &command_line] {
    chosen = [flags, &command_line] {
      return with_ranks(flags->compute.timeout,
                        [&](Ranks& ranks) { return Verifier(*flags, ranks, command_line).run(); });
    };
  });
}

}  // namespace diffuse
