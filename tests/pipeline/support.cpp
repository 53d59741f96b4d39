#include "support.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "backend/backend.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

// Positions that every budget here has room for: 4 pages.
constexpr std::int64_t kPositions = 4 * kPageTokens;

// One rank's part, in its thread.
void run_rank(const Subject& subject, const std::vector<PreparedRequest>& prepared, const Setting& setting,
              const Hooks& hooks, LoopbackNetwork& network, Transport& transport, Heard& heard) {
  const auto& model = hooks.model ? hooks.model(transport.rank()) : subject.model;
  const auto backend = make_cpu_backend({.threads = setting.threads, .compute = setting.compute, .simd = {}});
  const auto plan =
      make_plan(model.recipe, model.checkpoint.headers(), setting.ranks, setting.slices, setting.encoders);
  Log log({}, true);
  SplitRun split(model.recipe, model.checkpoint, plan, transport, *backend, log);
  if (transport.rank() != 0) return split.follow();

  heard.plan = plan;
  heard.loads = split.loads();
  heard.windows = hooks.windows;
  heard.tensors_hash = split.tensors_hash();
  std::optional<SoundMaker> sound;
  if (model.recipe.codec)
    sound.emplace(*model.recipe.codec, model.checkpoint, setting.threads, backend->target());
  Answers answers(prepared, subject.text, model.recipe.depth() + 1, hooks.kept,
                  [&](std::size_t index, const RequestResult&) { heard.reported.push_back(index); },
                  sound ? &*sound : nullptr,
                  {.kept = hooks.windows, .on_window = [&](std::size_t index, const Recording::Ended& ended) {
                     auto& windows = heard.windows[index][ended.piece];
                     if (ended.number != windows.size())
                       heard.errors.emplace_back("a window of the wrong number");
                     windows.push_back(ended.window);
                   }});
  heard.sequences = answers.sequences().size();
  std::uint64_t tokens = 0;
  auto events = answers.events();
  events.on_chosen = [&, take = events.on_chosen](std::size_t sequence, std::span<const ChosenToken> chosen) {
    ++tokens;
    if (hooks.on_token) hooks.on_token(tokens, network);
    return take(sequence, chosen);
  };
  if (hooks.stop) events.stop = [&] { return hooks.stop(tokens); };
  auto options = setting.options;
  options.watched = answers.watched();
  heard.report = split.run(answers.sequences(), options, events);
  heard.result.requests = answers.take();
}

}  // namespace

Subject::Subject(const std::filesystem::path& where, LoadMode mode)
    : folder(where), model(where, mode), text(TextSide::open(where)) {}

std::vector<PreparedRequest> Subject::prepare(const Job& job) const {
  return diffuse::prepare(job, text, limits_of(model.recipe, kPositions));
}

std::string to_text(const Setting& setting) {
  const auto& options = setting.options;
  const char* encoders[] = {"as many as pay", "one", "all"};
  return std::to_string(setting.ranks) +
         " ranks, encoders: " + encoders[static_cast<std::size_t>(setting.encoders)] + ", slices '" +
         setting.slices + "', " + std::to_string(setting.threads) + " threads, " +
         (setting.compute == Compute::f32 ? "f32" : "bf16") + ", chunk " + std::to_string(options.chunk) +
         ", group " + std::to_string(options.max_group) + ", groups " + std::to_string(options.groups) +
         ", pages " + std::to_string(options.kv_pages);
}

Heard run(const Subject& subject, const std::vector<PreparedRequest>& prepared, const Setting& setting,
          const Hooks& hooks) {
  Heard heard;
  heard.errors.resize(static_cast<std::size_t>(setting.ranks));
  LoopbackNetwork network(setting.ranks, setting.network);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    threads.emplace_back([&, rank, transport = std::shared_ptr<Transport>(network.endpoint(rank))]() mutable {
      auto& error = heard.errors[static_cast<std::size_t>(rank)];
      try {
        run_rank(subject, prepared, setting, hooks, network, *transport, heard);
      } catch (const std::exception& problem) {
        error = problem.what();
        if (error.empty()) error = "an error without a message";
      }
      transport.reset();
    });
  }
  for (auto& thread : threads) thread.join();
  return heard;
}

Heard run_well(const Subject& subject, const std::vector<PreparedRequest>& prepared, const Setting& setting,
               const Hooks& hooks) {
  auto heard = run(subject, prepared, setting, hooks);
  for (std::size_t rank = 0; rank < heard.errors.size(); ++rank)
    EXPECT_EQ(heard.errors[rank], "") << "rank " << rank << ", " << to_text(setting);
  EXPECT_EQ(heard.result.requests.size(), prepared.size());
  return heard;
}

std::string difference(const Result& whole, const Result& split) {
  const auto comparison = compare(whole, split);
  return comparison.identical() ? "" : verdict(comparison);
}

Job job_of(std::vector<Request> requests) {
  Job job;
  job.requests = std::move(requests);
  for (std::size_t i = 0; i < job.requests.size(); ++i) job.requests[i].id = "r" + std::to_string(i);
  return job;
}

Request request_of(std::vector<std::int32_t> ids, Json generate) {
  Request request;
  request.input = Tokens{std::move(ids)};
  request.generate = std::move(generate);
  return request;
}

std::vector<std::int32_t> random_ids(std::mt19937& random, std::int64_t vocab, std::int64_t count) {
  std::vector<std::int32_t> ids;
  while (static_cast<std::int64_t>(ids.size()) < count)
    ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
  return ids;
}

Job random_job(std::uint32_t seed, std::int64_t vocab, std::size_t requests, std::int64_t longest) {
  std::mt19937 random(seed);
  const auto pick = [&](auto... values) {
    const std::array<std::common_type_t<decltype(values)...>, sizeof...(values)> all = {values...};
    return all[random() % all.size()];
  };
  std::vector<Request> made;
  for (std::size_t i = 0; i < requests; ++i) {
    const auto length =
        pick(1, 2, 5, 17) + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest));
    Json generate = {{"max_new_tokens", 1 + random() % 14}};
    if (pick(false, true)) generate["temperature"] = pick(0.5, 1.0, 2.5);
    if (pick(false, true)) generate["seed"] = random();
    if (generate.contains("temperature")) {
      if (pick(false, true)) generate["top_k"] = pick(1, 3, 40);
      if (pick(false, true)) generate["top_p"] = pick(0.3, 0.9);
      if (pick(false, true)) generate["min_p"] = pick(0.02, 0.5);
    }
    if (pick(false, false, true)) generate["repetition_penalty"] = pick(0.7, 1.2, 5.0);
    if (pick(false, false, true)) generate["logprobs"] = pick(0, 1, 7);
    if (pick(false, false, true)) generate["n"] = pick(2, 3);
    if (pick(false, true)) generate["ignore_eos"] = true;
    made.push_back(request_of(random_ids(random, vocab, length), std::move(generate)));
  }
  auto job = job_of(std::move(made));
  job.sha256 = std::string(64, 'a');
  return job;
}

std::vector<Setting> random_settings(std::uint32_t seed, std::int64_t depth, std::size_t count) {
  std::mt19937 random(seed);
  const auto pick = [&](auto... values) {
    const std::array<std::common_type_t<decltype(values)...>, sizeof...(values)> all = {values...};
    return all[random() % all.size()];
  };
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < count; ++i) {
    Setting setting;
    setting.ranks = static_cast<std::int32_t>(1 + (i + seed) % 7);
    if (setting.ranks > 1 && pick(false, true)) {
      // Cuts of our own, one slice fewer than ranks now and then.
      const auto slices = std::min<std::int64_t>(setting.ranks - pick(0, 0, 1), depth);
      std::int64_t first = 0;
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        const auto left = slices - slice - 1;
        const auto most = static_cast<std::uint64_t>(depth - first - left);
        const auto end = left == 0 ? depth : first + 1 + static_cast<std::int64_t>(random() % most);
        setting.slices += (slice == 0 ? "" : ",") + std::to_string(first) + "-" + std::to_string(end - 1);
        first = end;
      }
    }
    setting.threads = pick(1, 1, 2);
    setting.options.chunk = pick(1, 3, 16, 64, 256);
    setting.options.max_group = pick(1, 2, 5, 64, 128);
    setting.options.groups = pick(0, 0, 1, 2, 9);
    setting.options.kv_pages = pick(4, 5, 9, 4096);
    settings.push_back(setting);
  }
  return settings;
}

ModelCopy::ModelCopy(const std::filesystem::path& from) {
  static std::atomic<int> count = 0;
  folder_ = std::filesystem::temp_directory_path() /
            ("diffuse-pipeline-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(folder_);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const auto to = folder_ / entry.path().filename();
    std::filesystem::copy_file(entry.path(), to);
    std::filesystem::permissions(to, std::filesystem::perms::owner_all);
  }
}

ModelCopy::~ModelCopy() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void ModelCopy::fill_row(const std::string& tensor, std::int64_t row, float value) const {
  std::fstream file(folder_ / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto entry = Json::parse(text).at(tensor);
  if (entry.at("dtype") != "F32") throw std::runtime_error("a matrix of f32 was expected");
  const auto cols = entry.at("shape").at(1).get<std::int64_t>();
  const std::vector<float> values(static_cast<std::size_t>(cols), value);
  file.seekp(static_cast<std::streamoff>(sizeof length + length +
                                         entry.at("data_offsets").at(0).get<std::uint64_t>()) +
             row * cols * 4);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
  if (!file) throw std::runtime_error("changing a tensor failed");
}

}  // namespace diffuse::test
