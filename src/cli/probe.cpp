#include "cli/probe.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "backend/backend.hpp"
#include "cli/model.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "slice/executor.hpp"
#include "text/sampling.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {
namespace {

// Written for this purpose: everyday words, whole sentences, nothing that a model would know by heart.
constexpr const char* kPage =
    "On Monday morning the baker opened her shop a little earlier than usual, because the market was in town "
    "and she "
    "expected many customers. She put the bread in the window, swept the floor, and made a pot of coffee. "
    "The first person "
    "to come in was an old man with a small dog. He bought two rolls and a piece of cake, and he told her "
    "that the road by "
    "the river was closed after the rain. \"You should send your son over the bridge,\" he said, \"or he "
    "will be late for "
    "school.\" She thanked him and called up the stairs. A few minutes later the boy came down, took an "
    "apple from the "
    "table, and ran out of the door with his bag in his hand. By noon the shop was full, and most of the "
    "bread was gone. In "
    "the afternoon it started to rain again, so people stood under the roof and talked about the weather, "
    "the price of "
    "flour, and the new teacher. When the clock struck six she closed the shop, counted the money, and wrote "
    "down what she "
    "would need for the next day.";

constexpr std::int64_t kMostTokens = 256;

}  // namespace

ProbeResult probe(const std::filesystem::path& folder, const std::vector<std::string>& accept) {
  const auto model = open_model(folder, LoadMode::mmap, accept);
  if (model.recipe.codec || model.recipe.refinement)
    throw_refused(std::string("the probe reads a page of text, and this model ") +
                  (model.recipe.codec ? "answers with codes of sound" : "makes pictures"));
  if (!Tokenizer::present(folder))
    throw_missing("the probe needs '" + (folder / "tokenizer.json").string() + "', which is not there");
  auto ids = Tokenizer::load(folder).encode(kPage, true);
  const auto rows =
      std::min({static_cast<std::int64_t>(ids.size()), kMostTokens, model.recipe.max_positions});
  ids.resize(static_cast<std::size_t>(rows));
  if (rows < 2) throw_bad_data("the probe's page has fewer than two tokens in this tokenizer");

  const auto backend = make_cpu_backend(
      {.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), .simd = {}});
  const auto plan = make_plan(model.recipe, model.checkpoint.headers(), 1);
  auto weights = load_slice(model.recipe, plan.ranks[0], model.checkpoint, *backend);
  Executor executor(model.recipe, plan.ranks[0], *backend, weights,
                    {.max_rows = rows, .max_samples = 1, .kv_pages = (rows + kPageTokens - 1) / kPageTokens});
  executor.admit(0, rows);
  Descriptor step;
  step.command = Command::step;
  step.entries = 1;
  step.entry[0].rows = static_cast<std::int32_t>(rows);
  const auto carry = executor.make_carry();
  const Rows hidden{carry.floats(), rows, model.recipe.hidden, model.recipe.hidden};
  executor.run(step, ids, hidden);

  double sum = 0;
  std::vector<float> logits(static_cast<std::size_t>(model.recipe.vocab));
  for (std::int64_t row = 0; row + 1 < rows; ++row) {
    const auto out = executor.logits(hidden, std::span(&row, 1));
    backend->download(std::as_writable_bytes(std::span(logits)),
                      reinterpret_cast<const std::byte*>(out.data));
    sum -= token_logprob(logits, ids[static_cast<std::size_t>(row) + 1]);
  }
  return {rows - 1, std::exp(sum / static_cast<double>(rows - 1)), static_cast<double>(model.recipe.vocab)};
}

std::string describe(const ProbeResult& result) {
  // A random model is at or above the uniform guess; the weakest trained ones on this page are far below it.
  const bool understood = result.perplexity < result.uniform / 4;
  return "perplexity " + fixed(result.perplexity, 1) + " over " + std::to_string(result.tokens) +
         " tokens, a uniform guess has " + fixed(result.uniform, 0) +
         (understood ? ""
                     : ": it does not read plain English: a wrong recipe, or a model that never learnt it");
}

Json to_json(const ProbeResult& result) {
  return {{"tokens", result.tokens}, {"perplexity", result.perplexity}, {"uniform", result.uniform}};
}

}  // namespace diffuse
