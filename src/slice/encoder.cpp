#include "slice/encoder.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/overloaded.hpp"
#include "slice/expected_steps.hpp"

namespace diffuse {
namespace {

std::int64_t pages_of(std::int64_t rows) {
  return (rows + kPageTokens - 1) / kPageTokens;
}

Rows part(Rows rows, std::int64_t first, std::int64_t count) {
  return {rows.data + first * rows.stride, count, rows.cols, rows.stride};
}

// Without padding.
std::int64_t computed_rows(const Encoder& encoder, const EncoderInput& input) {
  return std::visit(Overloaded{
                        [&](const Front&) { return static_cast<std::int64_t>(input.ids.size()); },
                        [&](const FramesFront& front) {
                          auto frames = static_cast<std::int64_t>(input.frames.size()) / front.features;
                          for (const auto& convolution : front.convolutions)
                            frames = convolution.frames_out(frames);
                          return frames;
                        },
                    },
                    encoder.front);
}

}  // namespace

std::int64_t memory_rows(const Encoder& encoder, const EncoderInput& input) {
  return std::max(input.padded_rows, computed_rows(encoder, input));
}

EncoderRunner::EncoderRunner(const Recipe& recipe, LoadedEncoder& weights, Backend& backend,
                             std::int64_t max_rows)
    : encoder_(*recipe.encoder),
      weights_(weights),
      backend_(backend),
      max_rows_(max_rows),
      most_pages_(pages_of(max_rows) + kMostInputs),
      runner_(backend, recipe.ropes, encoder_.blocks, encoder_.width, max_rows),
      hidden_(backend.allocate(static_cast<std::size_t>(max_rows * encoder_.width) * sizeof(float))) {
  for (const auto& projection : encoder_.projections)
    projected_.push_back(
        backend.allocate(static_cast<std::size_t>(max_rows * projection.weight.rows) * sizeof(float)));
  padding_.resize(static_cast<std::size_t>(encoder_.hidden));
  if (!projected_.empty()) {
    const auto made = project({hidden_.floats(), 1, encoder_.width, encoder_.width});  // zeros so far
    backend_.download(std::as_writable_bytes(std::span(padding_)),
                      reinterpret_cast<const std::byte*>(made.data));
  }
  // A block's keys and values are done with when the next block starts: one pool serves all.
  std::size_t bytes = 0;
  for (const auto& block : weights_.blocks) {
    for (const auto& step : block) {
      if (const auto* attention = std::get_if<AttentionStep>(&step))
        bytes = std::max(bytes, backend.kv_page_bytes(kv_spec(*attention->step)));
    }
  }
  const auto memory = backend.allocate(bytes * static_cast<std::size_t>(most_pages_));
  for (auto& block : weights_.blocks) {
    for (auto& step : block) {
      if (auto* attention = std::get_if<AttentionStep>(&step))
        attention->kv = {kv_spec(*attention->step), memory};
    }
  }
  backend.expect(expected_steps(
      weights_.blocks,
      {.rows = max_rows, .samples = kMostInputs, .positions = encoder_.max_positions, .pages = most_pages_}));
}

std::vector<std::vector<float>> EncoderRunner::encode(std::span<const EncoderInput* const> inputs) {
  start(inputs);
  while (advance()) {
  }
  return take();
}

void EncoderRunner::start(std::span<const EncoderInput* const> inputs) {
  if (pass_) throw_internal("a batch is to be encoded while another is");
  std::vector<std::int64_t> counts;
  for (const auto* input : inputs) counts.push_back(computed_rows(encoder_, *input));
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total > max_rows_ || static_cast<std::int64_t>(inputs.size()) > kMostInputs)
    throw_internal("more is to be encoded at once than there is room for");
  auto& pass = pass_.emplace();
  auto& context = pass.context;
  for (const auto* input : inputs) pass.padded_rows.push_back(input->padded_rows);
  auto& pages = pass.pages;
  pages.resize(inputs.size());
  std::int64_t row = 0;
  std::int32_t page = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    pages[i].resize(static_cast<std::size_t>(pages_of(counts[i])));
    std::iota(pages[i].begin(), pages[i].end(), page);
    page += static_cast<std::int32_t>(pages[i].size());
    context.segments.push_back({row, counts[i], 0, pages[i], counts[i]});
    for (std::int64_t position = 0; position < counts[i]; ++position) context.positions.push_back(position);
    row += counts[i];
  }
  pass.hidden = {hidden_.floats(), total, encoder_.width, encoder_.width};
  runner_.begin(context);
  embed(inputs, context, pass.hidden);
}

bool EncoderRunner::advance() {
  if (pass_->next == weights_.blocks.size()) return false;
  runner_.run(weights_.blocks[pass_->next++], pass_->context, pass_->hidden);
  return true;
}

std::vector<std::vector<float>> EncoderRunner::take() {
  const auto& context = pass_->context;
  const auto hidden = pass_->hidden;
  if (weights_.norm) runner_.norm(*weights_.norm, hidden, hidden);
  const Rows made = project(hidden);

  std::vector<std::vector<float>> memories;
  for (std::size_t i = 0; i < context.segments.size(); ++i) {
    const auto& segment = context.segments[i];
    auto& memory = memories.emplace_back(static_cast<std::size_t>(segment.rows * encoder_.hidden));
    backend_.download(std::as_writable_bytes(std::span(memory)),
                      reinterpret_cast<const std::byte*>(part(made, segment.first_row, segment.rows).data));
    for (auto row = segment.rows; row < pass_->padded_rows[i]; ++row)
      memory.insert(memory.end(), padding_.begin(), padding_.end());
  }
  pass_.reset();
  return memories;
}

Rows EncoderRunner::project(Rows hidden) {
  for (std::size_t i = 0; i < projected_.size(); ++i) {
    const auto& projection = encoder_.projections[i];
    const auto& loaded = weights_.projections[i];
    const auto cols = projection.weight.rows;
    const Rows made{projected_[i].floats(), hidden.rows, cols, cols};
    backend_.matmul(hidden, *loaded.matrix, made,
                    {.bias = loaded.bias_data(), .activation = projection.activation});
    hidden = made;
  }
  return hidden;
}

void EncoderRunner::embed(std::span<const EncoderInput* const> inputs, const BatchContext& context,
                          Rows hidden) {
  std::visit(Overloaded{
                 [&](const Front& front) {
                   std::vector<std::int32_t> ids;
                   for (const auto* input : inputs)
                     ids.insert(ids.end(), input->ids.begin(), input->ids.end());
                   runner_.embed(std::get<LoadedFront>(weights_.front), front, ids, context.positions,
                                 hidden);
                   backend_.synchronize();  // `ids` ends here
                 },
                 [&](const FramesFront& front) {
                   for (std::size_t i = 0; i < inputs.size(); ++i) {
                     const auto& segment = context.segments[i];
                     convolve(front, std::get<LoadedFrames>(weights_.front), *inputs[i],
                              part(hidden, segment.first_row, segment.rows));
                   }
                 },
             },
             encoder_.front);
}

void EncoderRunner::convolve(const FramesFront& front, const LoadedFrames& loaded, const EncoderInput& input,
                             Rows hidden) {
  const auto rows_of = [&](std::int64_t rows, std::int64_t cols, Buffer& buffer) {
    buffer = backend_.allocate(static_cast<std::size_t>(rows * cols) * sizeof(float));
    return Rows{buffer.floats(), rows, cols, cols};
  };
  Buffer held;  // what the next convolution reads
  auto x = rows_of(static_cast<std::int64_t>(input.frames.size()) / front.features, front.features, held);
  backend_.upload(held.data(), std::as_bytes(std::span(input.frames)));
  for (std::size_t i = 0; i < front.convolutions.size(); ++i) {
    const auto& convolution = front.convolutions[i];
    const auto& weights = loaded.convolutions[i];
    Buffer windows;
    Buffer made;
    const auto frames = convolution.frames_out(x.rows);
    const auto unfolded = rows_of(frames, convolution.inputs * convolution.width, windows);
    const auto last = i + 1 == front.convolutions.size();
    const auto y = last ? hidden : rows_of(frames, convolution.outputs, made);
    backend_.unfold({.x = x,
                     .out = unfolded,
                     .width = convolution.width,
                     .stride = convolution.stride,
                     .padding = convolution.padding});
    backend_.matmul(unfolded, *weights.matrix, y,
                    {.bias = weights.bias_data(), .activation = convolution.activation});
    backend_.synchronize();  // buffers end here
    held = made;
    x = y;
  }
  std::vector<std::int32_t> positions(static_cast<std::size_t>(hidden.rows));
  std::iota(positions.begin(), positions.end(), 0);
  backend_.add_positions(loaded.positions.floats(), positions, hidden);
  backend_.synchronize();  // `positions` ends here
}

}  // namespace diffuse
