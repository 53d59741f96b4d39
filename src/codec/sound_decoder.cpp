#include "codec/sound_decoder.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "codec/functions.hpp"
#include "core/error.hpp"

namespace diffuse::codec {
namespace {

// Rows are walked in pieces whose windows stay in the second cache.
constexpr std::int64_t kPieceBytes = 1 << 20;
constexpr std::int64_t kLeastRows = 192;

std::int64_t piece_rows(std::int64_t width) {
  return std::max(kLeastRows, kPieceBytes / static_cast<std::int64_t>(sizeof(float)) / width);
}

// The row of x that stands at `index`, which may lie outside of [0, rows), by up to `left`; -1: zeros. Too
// few rows to reflect are taken to have zeros behind them, as many as are needed.
std::int64_t source(std::int64_t index, std::int64_t rows, std::int64_t left, CodecPadding padding) {
  if (index >= 0 && index < rows) return index;
  switch (padding) {
    case CodecPadding::zeros:
      return -1;
    case CodecPadding::edge:
      return index < 0 ? 0 : rows - 1;
    case CodecPadding::reflect: {
      const auto all = std::max(rows, left + 1);
      const auto mirrored = index < 0 ? -index : index >= all ? 2 * (all - 1) - index : index;
      return mirrored < rows ? mirrored : -1;
    }
  }
  throw_internal("a codec's padding is none that exists");
}

void require_codes(bool holds, const std::string& what) {
  if (!holds) throw_bad_data("decoding sound: " + what);
}

}  // namespace

SoundDecoder::SoundDecoder(const SoundCodec& codec, const Checkpoint& checkpoint, Backend& backend)
    : codec_(codec), backend_(backend), weights_(load_sound_weights(codec, checkpoint, backend)) {
  if (!backend.host_addressable() || backend.compute() != Compute::f32)
    throw_internal("a sound codec was given a backend that does not compute in f32 in the host's memory");
}

void SoundDecoder::check(std::span<const std::vector<std::int32_t>> codes) const {
  const auto books = codec_.codebooks.size() * static_cast<std::size_t>(codec_.passes);
  require_codes(codes.size() == books, "an answer has codes of " + std::to_string(codes.size()) +
                                           " codebooks and the codec has " + std::to_string(books));
  for (const auto& codebook : codes) {
    require_codes(!codebook.empty() && codebook.size() == codes.front().size(),
                  "the codebooks of an answer have no codes or not equally many");
    for (const auto code : codebook)
      require_codes(code >= 0 && code < codec_.codebook_size, "the code " + std::to_string(code) +
                                                                  " is not in a codebook of " +
                                                                  std::to_string(codec_.codebook_size));
  }
}

Waveform SoundDecoder::decode(std::span<const std::vector<std::int32_t>> codes) {
  check(codes);
  const auto passes = static_cast<std::size_t>(codec_.passes);
  const auto channels = static_cast<std::size_t>(codec_.channels);
  Waveform wave;
  wave.channels = codec_.passes * codec_.channels;
  wave.rate = codec_.rate;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    std::vector<std::span<const std::int32_t>> own;
    for (std::size_t book = pass; book < codes.size(); book += passes) own.emplace_back(codes[book]);
    const auto samples = decode_pass(own);  // [frames, channels of the pass]
    wave.samples.resize(samples.size() * passes);
    for (std::size_t i = 0; i < samples.size(); ++i)
      wave.samples[(i / channels * passes + pass) * channels + i % channels] = samples[i];
  }
  if (!std::all_of(wave.samples.begin(), wave.samples.end(), [](float x) { return std::isfinite(x); }))
    throw_bad_data(
        "decoding sound: samples are not finite: the codec's weights or this build overflow on these codes");
  return wave;
}

std::vector<float> SoundDecoder::decode_pass(const std::vector<std::span<const std::int32_t>>& codes) {
  auto x = convolution(weights_.first, look_up(codes), false);
  lstm(x);
  for (const auto& stage : weights_.stages) {
    x = stretch(stage, x);
    for (const auto& each : stage.units) x = unit(each, x);
  }
  return convolution(weights_.last, x, true).memory;
}

SoundDecoder::Activations SoundDecoder::make(std::int64_t rows, std::int64_t width) const {
  return {std::vector<float>(static_cast<std::size_t>(rows * width)), 0, rows, width};
}

SoundDecoder::Activations SoundDecoder::look_up(
    const std::vector<std::span<const std::int32_t>>& codes) const {
  auto x = make(static_cast<std::int64_t>(codes.front().size()), codec_.hidden);
  for (std::size_t book = 0; book < codes.size(); ++book) {
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const float* from =
          weights_.codebooks[book].data() + codes[book][static_cast<std::size_t>(row)] * codec_.hidden;
      float* to = x.row(row);
      for (std::int64_t i = 0; i < x.width; ++i) to[i] += from[i];
    }
  }
  return x;
}

// All rows' inputs are one product; what the step before adds is one of a row a step.
void SoundDecoder::lstm(Activations& x) {
  auto in = x;
  const auto width = x.width;
  auto gates = make(x.rows, 4 * width);
  for (const auto& layer : weights_.lstm) {
    backend_.matmul({in.row(0), in.rows, width, width}, *layer.input,
                    {gates.row(0), gates.rows, gates.width, gates.width}, {.bias = layer.input_bias.data()});
    std::vector<float> cell(static_cast<std::size_t>(width));
    std::vector<float> before(cell.size());
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const float* last = row == 0 ? before.data() : in.row(row - 1);
      backend_.matmul({last, 1, width, width}, *layer.recurrent,
                      {gates.row(row), 1, gates.width, gates.width},
                      {.bias = layer.recurrent_bias.data(), .accumulate = true});
      backend_.synchronize();
      lstm_cells({gates.row(row), static_cast<std::size_t>(gates.width)}, cell, in.row(row));
    }
  }
  for (std::int64_t i = 0; i < x.rows * width; ++i) x.row(0)[i] = in.row(0)[i] + x.row(0)[i];
}

void SoundDecoder::gather(const Activations& x, std::int64_t left, std::int64_t first, std::int64_t last,
                          std::int64_t reach, bool activated, CodecPadding padding) {
  const auto width = static_cast<std::size_t>(x.width);
  window_.resize(static_cast<std::size_t>(last - first + reach) * width);
  for (std::int64_t index = first; index < last + reach; ++index) {
    float* to = window_.data() + static_cast<std::size_t>(index - first) * width;
    const auto from = source(index - left, x.rows, left, padding);
    if (from < 0) {
      std::fill_n(to, width, 0.0F);
    } else if (activated) {
      elu({x.row(from), width}, to);
    } else {
      std::copy_n(x.row(from), width, to);
    }
  }
}

// The convolution of `rows` windows that start in each row of `window_`.
void SoundDecoder::multiply(const LoadedConvolution& loaded, std::int64_t rows, Rows out, bool accumulate) {
  const auto& spec = *loaded.spec;
  for (std::size_t tap = 0; tap < loaded.taps.size(); ++tap) {
    const auto offset = static_cast<std::int64_t>(tap) * spec.dilation * spec.inputs;
    const auto& matrix = *loaded.taps[tap];
    backend_.matmul({window_.data() + offset, rows, matrix.cols(), spec.inputs}, matrix, out,
                    {.bias = tap == 0 ? loaded.bias.data() : nullptr, .accumulate = accumulate || tap > 0});
  }
  backend_.synchronize();
}

SoundDecoder::Activations SoundDecoder::convolution(const LoadedConvolution& loaded, const Activations& x,
                                                    bool activated) {
  const auto& spec = *loaded.spec;
  const auto reach = loaded.reach();
  const auto left = codec_.causal ? reach : reach - reach / 2;
  auto y = make(x.rows, spec.outputs);
  const auto piece = piece_rows(spec.inputs);
  for (std::int64_t first = 0; first < x.rows; first += piece) {
    const auto last = std::min(first + piece, x.rows);
    gather(x, left, first, last, reach, activated, codec_.padding);
    multiply(loaded, last - first, {y.row(first), last - first, y.width, y.width}, false);
  }
  return y;
}

// Each row gives `stride` rows and adds to the `stride` ones behind them: made of two neighbours at once,
// they lie in order.
SoundDecoder::Activations SoundDecoder::stretch(const LoadedStage& stage, const Activations& x) {
  const auto& spec = *stage.spec;
  auto y = make((x.rows + 1) * spec.stride, spec.outputs);
  const auto piece = piece_rows(spec.inputs);
  for (std::int64_t first = 0; first <= x.rows; first += piece) {
    const auto last = std::min(first + piece, x.rows + 1);
    gather(x, 1, first, last, 1, true, CodecPadding::zeros);
    backend_.matmul(
        {window_.data(), last - first, 2 * spec.inputs, spec.inputs}, *stage.matrix,
        {y.row(first * spec.stride), last - first, spec.stride * spec.outputs, spec.stride * spec.outputs},
        {.bias = stage.bias.data()});
    backend_.synchronize();
  }
  y.first = spec.trim_left * spec.outputs;
  y.rows = x.rows * spec.stride;
  return y;
}

SoundDecoder::Activations SoundDecoder::unit(const LoadedUnit& unit, const Activations& x) {
  const auto reach = unit.wide.reach();
  const auto left = codec_.causal ? reach : reach - reach / 2;
  auto y = make(x.rows, x.width);
  const auto piece = piece_rows(x.width);
  const auto width = unit.wide.spec->outputs;
  for (std::int64_t first = 0; first < x.rows; first += piece) {
    const auto last = std::min(first + piece, x.rows);
    const auto rows = last - first;
    const Rows out{y.row(first), rows, y.width, y.width};
    gather(x, left, first, last, reach, true, codec_.padding);
    inner_.resize(static_cast<std::size_t>(rows * width));
    multiply(unit.wide, rows, {inner_.data(), rows, width, width}, false);
    if (unit.shortcut) {
      gather(x, 0, first, last, 0, false, codec_.padding);
      multiply(*unit.shortcut, rows, out, false);
    } else {
      std::copy_n(x.row(first), rows * x.width, out.data);
    }
    window_.resize(inner_.size());
    elu(inner_, window_.data());
    multiply(unit.narrow, rows, out, true);
  }
  return y;
}

}  // namespace diffuse::codec
