#include "slice/plan.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "core/size.hpp"
#include "schedule/balance.hpp"

namespace diffuse {
namespace {

std::uint64_t bytes_of(const TensorHeaders& headers, const std::string& tensor) {
  const auto found = headers.find(tensor);
  if (found == headers.end())
    throw_internal("planning slices: the recipe names the tensor '" + tensor +
                   "', which the weights do not have");
  return (CheckedSize(count_of(found->second.shape)) * size_of(found->second.dtype)).value();
}

std::uint64_t bytes_of(const TensorHeaders& headers, const std::vector<std::string>& tensors) {
  CheckedSize sum = 0;
  for (const auto& tensor : tensors) sum = sum + bytes_of(headers, tensor);
  return sum.value();
}

// A byte of a block's weights takes longer than one of the head's: a block is many smaller products, with
// attention, norms and rotations between them, and the head is one large product. Measured on two models of
// 0.1 and 0.5 billion parameters, 8 and 16 rows a step, both compute modes: 1.4 to 2.0 times as long.
constexpr double kBlockWeight = 1.5;

// What the encoder costs a decoded token, over its bytes. It runs many rows at once, which takes a fifth to a
// third of the time that decoding takes a row (CostModel); a source of text is about as long as its answer.
// 30 s of sound are 1,500 rows for some 100 tokens, and rows that attend together share what they read: of
// Whisper-base a window takes 0.45 s of a thread, and its tokens 0.33 s.
constexpr double kEncoderShare = 0.25;
constexpr double kFramesShare = 7 * kEncoderShare;

// A few words become sound of hundreds of steps.
constexpr double kCodebooksShare = kEncoderShare / 20;

constexpr double kWorthCopies = 1.1;

// Of a block's experts a token touches top_k; everything else it touches whole.
double touched_bytes(const TensorHeaders& headers, const Block& block) {
  double bytes = static_cast<double>(bytes_of(headers, tensors_of(block)));
  for (const auto& step : block.steps) {
    const auto* experts = std::get_if<Experts>(&step);
    if (experts == nullptr || experts->experts.empty()) continue;
    const Block only{{*experts}};
    const double all = static_cast<double>(bytes_of(headers, tensors_of(only)));
    const double used = static_cast<double>(experts->top_k) / static_cast<double>(experts->experts.size());
    bytes -= all * (1 - used);
  }
  return bytes;
}

// Every token reads the keys and values of its own request's memory, where a byte of weights serves all
// tokens of a step: so many of a usual one. A memory of frames is long and always full; texts are short. The
// encoder's rows read as much of one another.
constexpr double kTokensAStep = 6;
double memory_cost(const Recipe& recipe, const Block& block, bool of_encoder) {
  if (!recipe.encoder || !std::holds_alternative<FramesFront>(recipe.encoder->front)) return 0;
  std::int64_t elements = 0;
  const auto add = [&](const auto& attention) {
    elements +=
        recipe.encoder->max_positions * attention.kv_heads * (attention.head_dim + attention.value_dim);
  };
  for (const auto& step : block.steps) {
    if (const auto* cross = std::get_if<CrossAttention>(&step)) add(*cross);
    if (const auto* own = std::get_if<Attention>(&step); own != nullptr && of_encoder) add(*own);
  }
  return kTokensAStep * static_cast<double>(elements) * sizeof(float);
}

// Once a request it runs over some hundred rows, and the stack that refines twenty to fifty times over
// thousands: nothing beside a layer.
double encoder_cost(const Recipe& recipe, const TensorHeaders& headers) {
  // Where a stack refines, a text is read once for some fifty passes of thousands of rows: nothing beside
  // them.
  if (!recipe.encoder || recipe.refinement) return 0;
  double bytes = 0;
  for (const auto& block : recipe.encoder->blocks)
    bytes += kBlockWeight * touched_bytes(headers, block) + memory_cost(recipe, block, true);
  if (std::holds_alternative<FramesFront>(recipe.encoder->front)) return bytes * kFramesShare;
  return bytes * (recipe.codebooks > 1 ? kCodebooksShare : kEncoderShare);
}

struct Costs {
  std::vector<double> layers;
  double back = 0;
  double encoder = 0;  // of one copy, with its share of what is encoded
};

// `slice` says what it is to hold; its tensors and what they cost are filled in.
RankSlice describe(const Recipe& recipe, const TensorHeaders& headers, RankSlice slice, const Costs& costs) {
  std::set<std::string> seen;
  const auto take = [&](const std::vector<std::string>& tensors) {
    for (const auto& tensor : tensors) {
      if (seen.insert(tensor).second) slice.tensors.push_back(tensor);
    }
  };
  if (slice.encoder) {
    take(tensors_of(*recipe.encoder));
    slice.encoder_cost = costs.encoder;
    slice.cost += costs.encoder;
  }
  if (!slice.idle()) take(common_tensors(recipe));
  if (slice.front) take(front_tensors(recipe));
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    take(tensors_of(recipe.blocks[static_cast<std::size_t>(layer)]));
    slice.cost += costs.layers[static_cast<std::size_t>(layer)];
  }
  if (slice.back) {
    take(back_tensors(recipe));
    slice.cost += costs.back;
  }
  slice.weight_bytes = bytes_of(headers, slice.tensors);
  return slice;
}

// Tensors that more than one block of the stack refers to.
std::vector<std::string> shared_tensors(const Recipe& recipe) {
  std::map<std::string, int> blocks;
  for (const auto& block : recipe.blocks) {
    for (const auto& tensor : tensors_of(block)) ++blocks[tensor];
  }
  std::vector<std::string> shared;
  for (const auto& [tensor, count] : blocks) {
    if (count > 1) shared.push_back(tensor);
  }
  const auto common = common_tensors(recipe);
  shared.insert(shared.end(), common.begin(), common.end());
  return shared;
}

std::int64_t parse_number(std::string_view text, const std::string& whole) {
  std::int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw_usage("--slices '" + whole + "': '" + std::string(text) +
                "' is not a layer number; write e.g. 0-7,8-23");
  }
  return value;
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> parse_slices(const std::string& text, std::int64_t depth) {
  std::vector<std::pair<std::int64_t, std::int64_t>> slices;
  std::int64_t next = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, comma - begin);
    const auto dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash), text);
    const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1), text);
    if (first != next || last < first) {
      throw_usage("--slices '" + text + "': the slice '" + std::string(part) + "' should start at layer " +
                  std::to_string(next) + " and hold at least one layer");
    }
    slices.emplace_back(first, last + 1);
    next = last + 1;
    begin = comma + 1;
  }
  if (next != depth) {
    throw_usage("--slices '" + text + "': they end at layer " + std::to_string(next - 1) +
                ", but the model has layers 0-" + std::to_string(depth - 1));
  }
  return slices;
}

namespace {

Plan plan_with(const Recipe& recipe, const TensorHeaders& headers, std::int32_t ranks,
               const std::string& slices, bool copies) {
  if (ranks < 1) throw_usage("planning slices: the number of ranks must be at least 1");
  Costs costs;
  for (const auto& block : recipe.blocks)
    costs.layers.push_back(kBlockWeight * touched_bytes(headers, block) + memory_cost(recipe, block, false));
  costs.back = static_cast<double>(bytes_of(headers, back_tensors(recipe)));
  costs.encoder = encoder_cost(recipe, headers) / (copies ? ranks : 1);

  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  if (slices.empty()) {
    // The front looks up one row a token: nothing beside a layer. One encoder weighs on the first slice
    // unless a rank is left for it; copies weigh on all alike, which moves no border.
    const double front = copies || ranks > recipe.depth() ? 0 : costs.encoder;
    for (const auto& [first, end] : balance(costs.layers, front, costs.back, ranks))
      ranges.emplace_back(first, end);
  } else {
    ranges = parse_slices(slices, recipe.depth());
  }
  if (ranges.size() > static_cast<std::size_t>(ranks)) {
    throw_usage("--slices '" + slices + "' names " + std::to_string(ranges.size()) +
                " slices, but there are only " + std::to_string(ranks) + " ranks");
  }
  Plan plan;
  plan.stages = static_cast<std::int32_t>(ranges.size());
  const bool own_rank = plan.stages < ranks;
  for (std::int32_t rank = 0; rank < ranks && recipe.encoder; ++rank) {
    if (copies || rank == (own_rank ? plan.stages : 0)) plan.encoders.push_back(rank);
  }
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const bool encodes = std::ranges::find(plan.encoders, rank) != plan.encoders.end();
    RankSlice slice{.rank = rank, .encoder = encodes, .tensors = {}};
    if (rank < plan.stages) {
      std::tie(slice.first_layer, slice.end_layer) = ranges[static_cast<std::size_t>(rank)];
      slice.front = slice.first_layer == 0;
      slice.back = slice.end_layer == recipe.depth();
    }
    plan.ranks.push_back(describe(recipe, headers, std::move(slice), costs));
  }
  plan.shared = shared_tensors(recipe);
  return plan;
}

}  // namespace

bool copies_pay(const Plan& one, const Plan& all) {
  return one.largest_cost() > kWorthCopies * all.largest_cost();
}

Plan make_plan(const Recipe& recipe, const TensorHeaders& headers, std::int32_t ranks,
               const std::string& slices, EncoderCopies copies) {
  auto one = plan_with(recipe, headers, ranks, slices, false);
  if (!recipe.encoder || recipe.refinement || ranks == 1 || copies == EncoderCopies::one) return one;
  auto all = plan_with(recipe, headers, ranks, slices, true);
  return copies == EncoderCopies::all || copies_pay(one, all) ? all : one;
}

std::string Plan::slices() const {
  std::string text;
  for (const auto& slice : ranks) {
    if (slice.idle()) continue;
    if (!text.empty()) text += ',';
    text += std::to_string(slice.first_layer) + "-" + std::to_string(slice.end_layer - 1);
  }
  return text;
}

std::string Plan::encoders_text() const {
  std::string text;
  for (const auto rank : encoders) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

double Plan::largest_cost() const {
  double largest = 0;
  for (const auto& slice : ranks) largest = std::max(largest, slice.cost);
  return largest;
}

std::int64_t kv_elements(const Block& block) {
  std::int64_t sum = 0;
  for (const auto& step : block.steps) {
    if (const auto* attention = std::get_if<Attention>(&step)) {
      sum += attention->kv_heads * (attention->head_dim + attention->value_dim);
    }
  }
  return sum;
}

Json to_json(const Plan& plan) {
  Json ranks = Json::array();
  for (const auto& slice : plan.ranks) {
    Json entry = {{"rank", slice.rank},
                  {"idle", slice.idle()},
                  {"front", slice.front},
                  {"back", slice.back},
                  {"encoder", slice.encoder},
                  {"weight_bytes", slice.weight_bytes},
                  {"cost", slice.cost},
                  {"encoder_cost", slice.encoder_cost},
                  {"tensors", slice.tensors.size()}};
    entry["layers"] = slice.idle() ? Json() : Json::array({slice.first_layer, slice.end_layer - 1});
    ranks.push_back(std::move(entry));
  }
  return {{"slices", plan.slices()},
          {"stages", plan.stages},
          {"encoder_ranks", plan.encoders},
          {"shared_tensors", plan.shared},
          {"ranks", std::move(ranks)}};
}

}  // namespace diffuse
