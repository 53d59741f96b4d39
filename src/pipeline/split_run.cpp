#include "pipeline/split_run.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/hash.hpp"
#include "pipeline/commander.hpp"
#include "pipeline/encoder_stage.hpp"

namespace diffuse {
namespace {

// Rows of memory that are encoded at once: enough to fill the products, and the longest input's at least.
std::int64_t encode_rows(const std::vector<Sequence>& sequences) {
  constexpr std::int64_t kEnough = 1024;
  std::int64_t longest = 0;
  std::int64_t all = 0;
  for (const auto& sequence : sequences) {
    longest = std::max(longest, sequence.memory_rows);
    all += sequence.memory_rows;
  }
  return std::max({longest, std::min(all, kEnough), std::int64_t{1}});
}

// What could be in use at once: memory that no schedule can fill is not taken.
std::int64_t useful_pages(const std::vector<Sequence>& sequences, std::size_t places) {
  std::vector<std::int64_t> pages;
  for (const auto& sequence : sequences) pages.push_back(pages_needed(need_of(sequence), kPageTokens));
  std::sort(pages.rbegin(), pages.rend());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < std::min(places, pages.size()); ++i) sum += pages[i];
  return std::max<std::int64_t>(sum, 1);
}

}  // namespace

std::int64_t kv_budget(const Recipe& recipe, const Plan& plan, const Backend& backend,
                       std::span<const std::uint64_t> bytes) {
  std::int64_t pages = std::numeric_limits<std::int32_t>::max();
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const auto page = kv_page_bytes(recipe, plan.ranks[rank], backend);
    if (page > 0) pages = std::min(pages, static_cast<std::int64_t>(bytes[rank] / page));
  }
  return pages;
}

SplitRun::SplitRun(const Recipe& recipe, const Checkpoint& checkpoint, const Plan& plan, Transport& transport,
                   Backend& backend, Log& log)
    : recipe_(recipe), plan_(plan), transport_(transport), backend_(backend), log_(log) {
  if (static_cast<int>(plan.ranks.size()) != transport.size())
    throw_internal("the plan is made for another number of ranks");
  const auto& slice = plan.ranks[static_cast<std::size_t>(transport.rank())];
  const auto start = std::chrono::steady_clock::now();
  if (!slice.tensors.empty()) {
    weights_ = load_slice(recipe, slice, checkpoint, backend, [&](std::uint64_t bytes) {
      log_.progress("loading weights, " + human_bytes(bytes) + " of " + human_bytes(slice.weight_bytes));
    });
  }
  log_.end_progress();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  exchange_loads({weights_.bytes_read, elapsed.count()});
}

SplitRun::~SplitRun() = default;

void SplitRun::exchange_loads(const LoadReport& mine) {
  // Hashes in the order of the plan's tensor list, which rank 0 has too.
  std::vector<std::uint64_t> hashes;
  const auto rank = static_cast<std::size_t>(transport_.rank());
  for (const auto& name : plan_.ranks[rank].tensors) hashes.push_back(weights_.hashes.at(name));
  if (rank != 0) {
    transport_.send_now(0, Channel::result, std::as_bytes(std::span(&mine, 1)), {"what a rank has loaded"});
    if (!hashes.empty())
      transport_.send_now(0, Channel::result, std::as_bytes(std::span(hashes)),
                          {"the hashes of a rank's tensors"});
    return;
  }
  hashes_ = weights_.hashes;
  loads_.push_back(mine);
  for (int peer = 1; peer < transport_.size(); ++peer) {
    const auto& tensors = plan_.ranks[static_cast<std::size_t>(peer)].tensors;
    auto& load = loads_.emplace_back();
    transport_.receive_now(peer, Channel::result, std::as_writable_bytes(std::span(&load, 1)),
                           {"what a rank has loaded"});
    if (tensors.empty()) continue;
    std::vector<std::uint64_t> theirs(tensors.size());
    transport_.receive_now(peer, Channel::result, std::as_writable_bytes(std::span(theirs)),
                           {"the hashes of a rank's tensors"});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto [entry, fresh] = hashes_.emplace(tensors[i], theirs[i]);
      if (!fresh && entry->second != theirs[i]) {
        throw_io("ranks 0 and " + std::to_string(peer) + " read different bytes for the tensor '" +
                 tensors[i] + "': the model folders on their hosts differ");
      }
    }
  }
}

std::string SplitRun::tensors_hash(const std::map<std::string, std::uint64_t>& beside) const {
  auto all = hashes_;
  all.insert(beside.begin(), beside.end());
  return combined_hash(all);
}

SplitRun::Setup SplitRun::agree(const Setup& mine) {
  Setup setup = mine;
  auto text = plan_.slices();
  if (!plan_.encoders.empty()) text += ", and who encodes: " + plan_.encoders_text();
  setup.plan = digest64(std::as_bytes(std::span(text)));
  if (transport_.rank() == 0) {
    for (int peer = 1; peer < transport_.size(); ++peer) {
      transport_.send_now(peer, Channel::control, std::as_bytes(std::span(&setup, 1)),
                          {"the set-up of a run"});
    }
    return setup;
  }
  Setup theirs;
  transport_.receive_now(0, Channel::control, std::as_writable_bytes(std::span(&theirs, 1)),
                         {"the set-up of a run"});
  if (theirs.plan != setup.plan) {
    throw_internal("this rank planned the slices " + text +
                   ", rank 0 others: do all ranks see the same model folder?");
  }
  return theirs;
}

// From rank 0 to the stages.
std::vector<WatchedHead> SplitRun::agree_on_watched(std::vector<WatchedHead> heads, std::uint64_t count) {
  heads.resize(static_cast<std::size_t>(count));
  if (count == 0) return heads;
  const Purpose purpose{"the heads that are watched"};
  if (transport_.rank() != 0) {
    transport_.receive_now(0, Channel::control, std::as_writable_bytes(std::span(heads)), purpose);
    return heads;
  }
  for (int peer = 1; peer < plan_.stages; ++peer)
    transport_.send_now(peer, Channel::control, std::as_bytes(std::span(heads)), purpose);
  return heads;
}

DriverReport SplitRun::run(const std::vector<Sequence>& sequences, const RunOptions& options,
                           const DriverEvents& events) {
  ScheduleConfig schedule;
  schedule.stages = plan_.stages;
  schedule.max_rows_per_step = options.chunk;
  schedule.max_group = std::min(options.max_group, kMaxEntries);
  schedule.groups = options.groups;
  schedule.tune_groups = true;
  schedule.page_tokens = kPageTokens;
  for (const auto& sequence : sequences)
    schedule.most_lanes = std::max({schedule.most_lanes, sequence.lanes, sequence.most_lanes});
  schedule.max_group = std::max(schedule.max_group, schedule.most_lanes);  // they run together or not at all
  const auto places =
      static_cast<std::size_t>(schedule.max_group) * static_cast<std::size_t>(plan_.stages + 2);
  schedule.kv_pages = std::min(options.kv_pages, useful_pages(sequences, places));
  // A decode step's rows may exceed a small chunk.
  const auto max_rows = options.chunk + schedule.max_group;
  schedule.encode_rows = encode_rows(sequences);
  schedule.encode_inputs = static_cast<std::int32_t>(EncoderRunner::kMostInputs);
  // Rank 0 last: the others begin while it makes the next inputs ready.
  schedule.encoders = plan_.encoders;
  if (schedule.encoders.empty()) schedule.encoders = {0};
  if (schedule.encoders.front() == 0) std::ranges::rotate(schedule.encoders, schedule.encoders.begin() + 1);
  const auto setup = agree({.max_rows = max_rows,
                            .kv_pages = schedule.kv_pages,
                            .encode_rows = schedule.encode_rows,
                            .watched = options.watched.size(),
                            .trace = options.trace});
  agree_on_watched(options.watched, setup.watched);

  const auto& slice = plan_.ranks.front();
  Executor executor(recipe_, slice, backend_, weights_,
                    {.max_rows = setup.max_rows,
                     .kv_pages = setup.kv_pages,
                     .trace = options.trace,
                     .watched = options.watched});
  auto encoder = make_encoder(setup.encode_rows);
  Stage stage(TextWork(executor, backend_), backend_, transport_, recipe_,
              {.stages = plan_.stages, .flip = options.flip}, encoder ? &*encoder : nullptr);
  DriverPlan driver;
  driver.layers = digest_layers(plan_);
  driver.watched = options.watched;
  driver.trace = options.trace;
  auto report = drive(stage, transport_, schedule, sequences, driver, events);
  log_.end_progress();
  return report;
}

void SplitRun::follow() {
  const auto setup = agree({});
  const auto& slice = plan_.ranks[static_cast<std::size_t>(transport_.rank())];
  if (slice.idle()) {
    if (slice.encoder) encode(setup.encode_rows);
    return;
  }
  if (recipe_.refinement) {
    follow_refinement(setup);
    return;
  }
  Executor executor(recipe_, slice, backend_, weights_,
                    {.max_rows = setup.max_rows,
                     .kv_pages = setup.kv_pages,
                     .trace = setup.trace != 0,
                     .watched = agree_on_watched({}, setup.watched)});
  auto encoder = make_encoder(setup.encode_rows);
  Stage stage(TextWork(executor, backend_), backend_, transport_, recipe_,
              {.stages = plan_.stages, .flip = {}}, encoder ? &*encoder : nullptr);
  const auto report = stage.loop();
  transport_.send_now(0, Channel::result, std::as_bytes(std::span(&report, 1)), {"the report of a stage"});
}

void SplitRun::encode(std::int64_t rows) {
  auto runner = make_encoder(rows);
  BatchEncoder encoder(*runner, *recipe_.encoder, transport_, plan_.stages);
  const auto report = encode_batches(encoder, transport_);
  transport_.send_now(0, Channel::result, std::as_bytes(std::span(&report, 1)),
                      {"the report of a rank that encodes"});
}

// Where this rank holds a copy; `rows` at once.
std::optional<EncoderRunner> SplitRun::make_encoder(std::int64_t rows) {
  if (!weights_.encoder) return std::nullopt;
  return std::optional<EncoderRunner>(std::in_place, recipe_, *weights_.encoder, backend_, rows);
}

}  // namespace diffuse
