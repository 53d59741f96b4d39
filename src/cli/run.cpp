// diffuse run: a job through the ranks, a result file, a journal to go on from.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>

#include "cli/calibrate.hpp"
#include "cli/commands.hpp"
#include "cli/places.hpp"
#include "cli/preview_files.hpp"
#include "cli/provenance.hpp"
#include "cli/run_job.hpp"
#include "cli/stop_signals.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/hash.hpp"
#include "job/job_file.hpp"
#include "job/journal.hpp"
#include "job/merge.hpp"
#include "job/result_file.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;

struct RunFlags {
  std::string job;
  std::string output;
  ComputeFlags compute;
  PictureFlags pictures;
  std::int64_t preview = 0;
  double max_time = 0;
  bool no_resume = false;
  bool trace = false;
};

// The model that the flags or the job name, on every rank.
std::string agree_on_model(Ranks& ranks, const std::string& flag, const Job& job) {
  if (ranks.root() && flag.empty() && job.model.empty())
    throw_usage("the job names no model; say --model DIR");
  return ranks.broadcast(flag.empty() ? job.model : flag, "the model's folder; rank 0 reads the job first");
}

using Finished = std::map<std::uint64_t, RequestResult>;  // by index in the job

bool lacks_trace(const RequestResult& request) {
  return std::any_of(request.samples.begin(), request.samples.end(), [](const Sample& sample) {
    return (!sample.tokens.empty() || sample.media || sample.latent) && sample.trace.digests.empty();
  });
}

// Whether a result comes of a run of that identity. Keys that a run may lack are `optional`: then the result
// lacks them too.
bool is_of(const Json& provenance, const Json& identity, std::initializer_list<std::string_view> optional) {
  const auto items = identity.items();
  const bool has_all = std::all_of(items.begin(), items.end(), [&](const auto& item) {
    return provenance.value(item.key(), Json()) == item.value();
  });
  return has_all && std::all_of(optional.begin(), optional.end(), [&](std::string_view key) {
           return identity.contains(key) || !provenance.contains(key);
         });
}

// What an output holds of this very run already.
struct Earlier {
  Finished finished;   // empty where it is not this run's, or not finished
  bool whole = false;  // there is nothing left to do
};

// What was bad is finished only if it still is: more memory, or another build, may answer it.
Earlier earlier_result(const RunFlags& flags, const PreparedJob& job, const Json& identity) {
  const auto requests = seeds_of(job).size();
  if (flags.no_resume || !fs::exists(flags.output)) return {};
  auto result = read_result(flags.output);
  if (result.requests.size() != requests) return {};
  if (!is_of(result.provenance, identity, {provenance_key::kPatches, provenance_key::kTiles})) return {};
  Earlier earlier{.finished = {}, .whole = true};
  for (std::size_t i = 0; i < requests; ++i) {
    auto& request = result.requests[i];
    if (request.status == Status::unfinished || (flags.trace && lacks_trace(request))) return {};
    if (request.status == Status::bad && problem_of(job, i).empty()) {
      earlier.whole = false;
    } else {
      earlier.finished.emplace(i, std::move(request));
    }
  }
  return earlier;
}

// Rank 0's side of a run that writes files.
class Recorder {
 public:
  Recorder(const RunFlags& flags, Log& log) : flags_(flags), log_(log) {}

  EarlierWork open(const Json& provenance, const PreparedJob& job) {
    const auto seeds = seeds_of(job);
    const auto identity = journal_identity(provenance).dump();
    kept_.emplace(flags_.output, digest64(std::as_bytes(std::span(identity))));
    const auto path = Journal::path_of(flags_.output);
    Earlier result;
    if (!fs::exists(path)) {
      result = earlier_result(flags_, job, journal_identity(provenance));
      nothing_to_do_ = result.whole && !result.finished.empty();
      if (nothing_to_do_) {
        log_.line("'" + flags_.output +
                  "' holds the whole result of this job already; --no-resume runs it again");
        return {.finished = std::move(result.finished)};
      }
    }
    if (flags_.no_resume) {
      Journal::move_aside(path);
      kept_->drop_all();
    }
    journal_.emplace(Journal::open_or_create(path, journal_identity(provenance)));
    resumed_ = journal_->resumed();
    if (!journal_->locked())
      log_.warn("this file system has no locks: nothing keeps a second run off the journal");
    if (!journal_->resumed() || journal_->seeds().empty()) journal_->write_seeds(seeds);
    for (const auto& [index, request] : result.finished) journal_->append(index, request);
    EarlierWork earlier{.finished = journal_->take_finished(), .windows = journal_->take_windows()};
    earlier.finished.merge(result.finished);
    std::erase_if(earlier.finished, [&](const auto& entry) {
      return entry.second.status == Status::bad && problem_of(job, entry.first).empty();
    });
    // Digests that are asked for only now are worth running again, and windows are kept without theirs.
    if (flags_.trace) {
      std::erase_if(earlier.finished, [](const auto& entry) { return lacks_trace(entry.second); });
      earlier.windows.clear();
    }
    std::erase_if(earlier.windows, [&](const auto& entry) { return earlier.finished.contains(entry.first); });
    return earlier;
  }

  void append(std::size_t index, const RequestResult& request) {
    if (!journal_) return;
    journal_->append(index, request);
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample)
      kept_->drop(index, static_cast<std::int64_t>(sample));
  }

  void append(std::size_t index, const Recording::Ended& ended) {
    if (journal_) journal_->append_window(index, ended.piece, ended.number, ended.window);
  }

  // See JobEvents.
  std::optional<PatchFlags> patches_before(const Json& provenance) const {
    if (flags_.no_resume) return std::nullopt;
    const auto within_budget = [&](const Json& before) -> std::optional<PatchFlags> {
      const auto cut = before.value(std::string(provenance_key::kPatches), Json());
      if (!cut.is_object() || cut.value("max_error", Json()) != Json(*flags_.pictures.max_error))
        return std::nullopt;
      return patch_flags_of(cut);
    };
    const auto path = Journal::path_of(flags_.output);
    if (const auto before = fs::exists(path) ? Journal::identity_of(path) : Json(); before.is_object()) {
      // Another run's is refused all the same: measuring first would be for nothing.
      return within_budget(before).value_or(PatchFlags());
    }
    if (!fs::exists(flags_.output)) return std::nullopt;
    const auto before = read_result(flags_.output).provenance;
    const bool same = is_of(before, journal_identity(provenance), {provenance_key::kTiles});
    return same ? within_budget(before) : std::nullopt;
  }

  // Between two steps; null before open().
  const KeptSteps* kept() const { return kept_ ? &*kept_ : nullptr; }

  void write(const Result& result, bool whole) {
    if (nothing_to_do_ || !kept_) return;
    // Another job's, or an earlier run's.
    if (const auto kept = resumed_ ? std::nullopt : keep_earlier(flags_.output)) log_.line(*kept);
    write_result(flags_.output, result);
    if (!whole || !journal_) return;
    journal_->remove();
    kept_->drop_all();
  }

 private:
  const RunFlags& flags_;
  Log& log_;
  std::optional<Journal> journal_;
  std::optional<KeptSteps> kept_;
  bool resumed_ = false;
  bool nothing_to_do_ = false;
};

int exit_code(const JobOutcome& outcome, Log& log) {
  const auto& requests = outcome.result.requests;
  const auto done = std::count_if(requests.begin(), requests.end(), [](const RequestResult& request) {
    return request.status == Status::done;
  });
  const auto bad = tell_of_bad(outcome.result, log);
  const auto total = requests.size();
  const auto rate = outcome.pictures
                        ? fixed(outcome.steps_per_second, 2) + " steps/s"
                        : fixed(outcome.tokens_per_second, 1) + (outcome.codes ? " codes/s" : " tokens/s");
  // A run that was stopped while patches were measured has none yet.
  if (total > 0 || !outcome.stopped)
    log.line(std::to_string(done) + " of " + std::to_string(total) + " requests done, " +
             fixed(outcome.run_seconds, 1) + " s, " + rate + ", stages " + fixed(100 * outcome.busy, 0) +
             " % busy");
  if (outcome.stopped) {
    log.line("stopped on request; the same command goes on");
    return static_cast<int>(ExitCode::stopped);
  }
  return static_cast<int>(bad > 0 ? ExitCode::bad_data : ExitCode::done);
}

int run_on_ranks(RunFlags flags, Ranks& ranks, const StopSignals& signals,
                 const std::vector<std::string>& command_line) {
  const auto start = std::chrono::steady_clock::now();
  Job job;
  if (ranks.root()) {
    check_place(flags.output);
    check_apart(flags.output, flags.job);
    job = read_job(flags.job);
  }
  const auto folder = agree_on_model(ranks, flags.compute.model, job);
  const auto model = ranks.together("opening the model", [&] {
    return open_model(folder, flags.compute.load_mode(), flags.compute.accept);
  });
  PatchFlags patches;
  const auto plan = ranks.together("planning the slices", [&] {
    flags.compute.check_for(model.recipe);
    flags.pictures.check_for(model.recipe);
    if (!model.recipe.refinement) refuse_for_tokens(flags.preview > 0, "--preview");
    patches = flags.pictures.patch_flags();
    return make_plan(model.recipe, model.checkpoint.headers(), ranks.size(), flags.compute.slices,
                     flags.compute.copies());
  });
  auto processor = make_processor(flags.compute, ranks);
  const auto& own = plan.ranks[static_cast<std::size_t>(ranks.rank())];
  if (own.idle() && own.encoder) {
    ranks.log().line("holds no layers and encodes");
  } else if (own.idle()) {
    ranks.log().line("holds no layers and idles: the model has " + std::to_string(plan.stages) + " slices");
  }

  auto options = flags.compute.run_options();
  options.kv_pages = kv_pages_of(flags.compute, ranks, processor, model, plan);
  options.trace = flags.trace;
  PreparedJob prepared;
  const PictureSettings pictures{
      .patches = patches, .max_error = flags.pictures.max_error, .tile = flags.pictures.tile};
  if (ranks.root()) {
    prepared = prepare_job(job, model, options.kv_pages, pictures);
    tell_notes(prepared, model.recipe, ranks.log());
  }
  Recorder recorder(flags, ranks.log());
  const auto outcome = run_job(
      ranks, *processor.backend, flags.compute, model, plan, prepared, options, command_line, job.sha256,
      {.on_loaded = [&](const Json& provenance) { return recorder.open(provenance, prepared); },
       .on_request = [&](std::size_t index,
                         const RequestResult& request) { recorder.append(index, request); },
       .on_window = [&](std::size_t index, const Recording::Ended& ended) { recorder.append(index, ended); },
       .stop =
           [&] {
             const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
             return signals.asked() || (flags.max_time > 0 && elapsed.count() > flags.max_time);
           },
       .kept = [&] { return recorder.kept(); },
       .patches_before = [&](const Json& provenance) { return recorder.patches_before(provenance); },
       .preview_every = flags.preview,
       .previews = PreviewFiles::folder_of(flags.output)});
  if (ranks.root()) recorder.write(outcome.result, !outcome.stopped);
  processor.close();
  return ranks.root() ? exit_code(outcome, ranks.log()) : 0;
}

}  // namespace

void add_run(CLI::App& app, ChosenCommand& chosen, const std::vector<std::string>& command_line) {
  auto flags = std::make_shared<RunFlags>();
  auto* command =
      app.add_subcommand("run", "Run a job over the ranks of mpirun or srun (one rank without them)");
  command->add_option("job", flags->job, "Job file, of `diffuse pack` or of h5py")->required();
  command->add_option("-o,--output", flags->output, "Result file")->required();
  flags->compute.add_to(*command);
  flags->pictures.add_to(*command);
  command
      ->add_option("--preview", flags->preview,
                   "Every so many steps, the first frame of what each picture is heading for, as PNG in "
                   "OUT.h5.previews/")
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--max-time", flags->max_time,
                   "Stop at a safe point after so many seconds; the same command goes on")
      ->check(between(1e-9, kMostSeconds));
  command->add_flag("--no-resume", flags->no_resume, "Start anew; what is there is kept beside it as _prev");
  command->add_flag("--trace", flags->trace, "Keep a digest of what left each layer, for compare");
  command->callback([flags, &chosen, &command_line] {
    chosen = [flags, &command_line] {
      const StopSignals signals;  // before MPI starts, and until it has ended
      return with_ranks(flags->compute.timeout,
                        [&](Ranks& ranks) { return run_on_ranks(*flags, ranks, signals, command_line); });
    };
  });
}

}  // namespace diffuse
