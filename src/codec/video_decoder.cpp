#include "codec/video_decoder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/size.hpp"

namespace diffuse::codec {
namespace {

// Places are walked in pieces whose inputs and outputs stay in the second cache while all taps pass.
constexpr std::int64_t kPieceFloats = 1 << 18;
constexpr std::int64_t kLeastPlaces = 192;

// Under the square root of a norm, where the places of the border are all zeros. What it changes elsewhere is
// under the last bit.
constexpr float kNormEps = 1e-30F;

// To the nearest whole number, halves to even; 0 <= x <= 255.
std::uint8_t byte_of(float x) {
  constexpr float kPush = 0x1.8p23F;
  return static_cast<std::uint8_t>((x * 255.0F + kPush) - kPush);
}

void append_pixels(const PlaneData& colours, std::vector<float>& to) {
  for (std::int64_t y = 0; y < colours.height; ++y) {
    const auto row = colours.row(y);
    to.insert(to.end(), row.data, row.data + row.rows * row.cols);
  }
}

// b = a at its start, b at the end of `count` steps.
void fade(const float* a, float* b, std::int64_t step, std::int64_t count, std::int64_t values) {
  const auto of_b = static_cast<double>(step) / static_cast<double>(count);
  const auto weight_a = static_cast<float>(1 - of_b);
  const auto weight_b = static_cast<float>(of_b);
  for (std::int64_t i = 0; i < values; ++i) b[i] = a[i] * weight_a + b[i] * weight_b;
}

// The last rows of the tile above fade into the first ones of this, and columns likewise.
template <typename Tile>
void fade_down(Tile& above, Tile& tile, std::int64_t overlap, std::int64_t frames) {
  const auto count = std::min({above.height, tile.height, overlap});
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t y = 0; y < count; ++y)
      fade(above.row(frame, above.height - count + y), tile.row(frame, y), y, count, tile.width * 3);
  }
}
template <typename Tile>
void fade_right(Tile& left, Tile& tile, std::int64_t overlap, std::int64_t frames) {
  const auto count = std::min({left.width, tile.width, overlap});
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t y = 0; y < tile.height; ++y) {
      for (std::int64_t x = 0; x < count; ++x)
        fade(left.row(frame, y) + (left.width - count + x) * 3, tile.row(frame, y) + x * 3, x, count, 3);
    }
  }
}

}  // namespace

VideoDecoder::VideoDecoder(const VideoCodec& codec, const Checkpoint& checkpoint, Backend& backend)
    : codec_(codec),
      backend_(backend),
      weights_(load_video_weights(codec, checkpoint, backend)),
      planes_(backend) {
  if (!backend.host_addressable() || backend.compute() != Compute::f32)
    throw_internal("a video decoder was given a backend that does not compute in f32 in the host's memory");
}

void VideoDecoder::check(std::span<const float> latents, const LatentSize& size) const {
  const std::array shape = {codec_.latent_channels, size.frames, size.height, size.width};
  if (size.frames < 1 || size.height < 1 || size.width < 1 || count_of(shape) != latents.size())
    throw_bad_data("decoding a video: a latent of " + std::to_string(latents.size()) +
                   " values is not one of " + std::to_string(codec_.latent_channels) + " channels, " +
                   std::to_string(size.frames) + " frames of " + std::to_string(size.height) + " x " +
                   std::to_string(size.width));
}

void VideoDecoder::decode(std::span<const float> latents, const LatentSize& size, const Sink& sink) {
  check(latents, size);
  std::vector<float> frame;
  decode_window(latents, size, {0, 0, size.height, size.width}, [&](const PlaneData& colours) {
    frame.clear();
    append_pixels(colours, frame);
    show(frame, sink);
  });
}

void VideoDecoder::decode(std::span<const float> latents, const LatentSize& size, const VideoTiling& tiling,
                          const Sink& sink) {
  check(latents, size);
  const auto scale = codec_.space_scale();
  if (tiling.stride < 1 || tiling.size < tiling.stride || tiling.size % scale != 0 ||
      tiling.stride % scale != 0)
    throw_bad_data("decoding a video: tiles of " + std::to_string(tiling.size) + " pixels every " +
                   std::to_string(tiling.stride) + "; both must be multiples of " + std::to_string(scale) +
                   ", and tiles must meet");
  const auto side = tiling.size / scale;
  const auto step = tiling.stride / scale;
  if (size.height <= side && size.width <= side) return decode(latents, size, sink);

  const auto frames = codec_.frames_of(size.frames);
  Tile whole = {size.height * scale, size.width * scale, {}};
  whole.pixels.resize(static_cast<std::size_t>(frames * whole.height * whole.width * 3));
  const auto overlap = tiling.size - tiling.stride;
  std::vector<Tile> above, row;
  for (std::int64_t y = 0; y < size.height; y += step, above = std::move(row), row.clear()) {
    for (std::int64_t x = 0; x < size.width; x += step) {
      auto tile =
          decode_tile(latents, size, {y, x, std::min(side, size.height - y), std::min(side, size.width - x)});
      if (y > 0) fade_down(above[row.size()], tile, overlap, frames);
      if (x > 0) fade_right(row.back(), tile, overlap, frames);
      const auto height = std::min(tiling.stride, tile.height);
      const auto width = std::min(tiling.stride, tile.width);
      for (std::int64_t at = 0; at < frames * height; ++at)
        std::copy_n(tile.row(at / height, at % height), width * 3,
                    whole.row(at / height, y * scale + at % height) + x * scale * 3);
      row.push_back(std::move(tile));
    }
  }
  const auto floats = static_cast<std::size_t>(whole.height * whole.width * 3);
  for (std::int64_t frame = 0; frame < frames; ++frame) show({whole.row(frame, 0), floats}, sink);
}

Frames VideoDecoder::decode(std::span<const float> latents, const LatentSize& size,
                            const std::optional<VideoTiling>& tiling) {
  Frames frames;
  frames.height = size.height * codec_.space_scale();
  frames.width = size.width * codec_.space_scale();
  const auto take = [&](std::span<const float> frame) {
    ++frames.count;
    std::transform(frame.begin(), frame.end(), std::back_inserter(frames.pixels), byte_of);
  };
  if (tiling) {
    decode(latents, size, *tiling, take);
  } else {
    decode(latents, size, take);
  }
  return frames;
}

void VideoDecoder::decode_window(std::span<const float> latents, const LatentSize& size, const Window& window,
                                 const Take& take) {
  before_ = std::vector<Before>(weights_.causal);
  for (std::int64_t frame = 0; frame < size.frames; ++frame) {
    auto x = planes_.take(window.height, window.width, weights_.first.outputs);
    causal(weights_.first, first_plane(latents, size, window, frame), x, false);
    x = residual(weights_.middle_in, std::move(x));
    attend(weights_.middle, x);
    x = residual(weights_.middle_out, std::move(x));
    run_stage(0, std::move(x), frame > 0, take);
  }
  before_.clear();
  planes_.release();
}

VideoDecoder::Tile VideoDecoder::decode_tile(std::span<const float> latents, const LatentSize& size,
                                             const Window& window) {
  Tile tile = {window.height * codec_.space_scale(), window.width * codec_.space_scale(), {}};
  decode_window(latents, size, window,
                [&](const PlaneData& colours) { append_pixels(colours, tile.pixels); });
  return tile;
}

// [-1, 1] -> [0, 1], within it.
void VideoDecoder::show(std::span<float> frame, const Sink& sink) {
  if (!std::all_of(frame.begin(), frame.end(), [](float value) { return std::isfinite(value); }))
    throw_bad_data(
        "decoding a video: pixels are not finite; its latents or the decoder's weights are at fault");
  for (auto& value : frame) value = std::clamp(std::clamp(value, -1.0F, 1.0F) * 0.5F + 0.5F, 0.0F, 1.0F);
  sink(frame);
}

// The latent's own range, and `bridge`.
Plane VideoDecoder::first_plane(std::span<const float> latents, const LatentSize& size, const Window& window,
                                std::int64_t frame) {
  const auto x = planes_.take(window.height, window.width, codec_.latent_channels);
  for (std::int64_t channel = 0; channel < codec_.latent_channels; ++channel) {
    const auto index = static_cast<std::size_t>(channel);
    const float inverse = 1.0F / weights_.deviation[index];
    const float mean = weights_.mean[index];
    const float* from =
        latents.data() + ((channel * size.frames + frame) * size.height + window.y) * size.width + window.x;
    for (std::int64_t y = 0; y < window.height; ++y) {
      for (std::int64_t place = 0; place < window.width; ++place)
        x->at(y, place)[channel] = from[y * size.width + place] / inverse + mean;
    }
  }
  return pointwise(weights_.bridge, x);
}

void VideoDecoder::run_stage(std::size_t index, Plane x, bool stretches, const Take& take) {
  const auto& stage = weights_.stages[index];
  for (const auto& block : stage.residuals) x = residual(block, std::move(x));
  if (!stage.upsampler) return finish(std::move(x), take);
  const auto& upsampler = *stage.upsampler;
  // Of the first latent frame comes one frame, which the convolution in time never sees.
  if (upsampler.time.empty() || !stretches) {
    auto wide = upsample(upsampler.space, x);
    x.reset();
    return run_stage(index + 1, std::move(wide), stretches, take);
  }
  auto& [earlier, last] = before_[upsampler.time.front().number];
  const std::array<const PlaneData*, 3> frames = {earlier.get(), last.get(), x.get()};
  for (const auto& half : upsampler.time) {
    auto made = planes_.take(x->height, x->width, half.outputs);
    convolve(half, frames, made, false);
    auto wide = upsample(upsampler.space, made);
    made.reset();
    run_stage(index + 1, std::move(wide), stretches, take);
  }
  earlier = std::move(last);
  last = std::move(x);
}

void VideoDecoder::finish(Plane x, const Take& take) {
  const auto colours = planes_.take(x->height, x->width, weights_.last.outputs);
  causal(weights_.last, norm_silu(weights_.norm, x), colours, false);
  x.reset();
  take(*colours);
}

Plane VideoDecoder::residual(const LoadedVideoResidual& block, Plane x) {
  auto inner = planes_.take(x->height, x->width, block.first.outputs);
  causal(block.first, norm_silu(block.norm1, x), inner, false);
  auto normed = norm_silu(block.norm2, inner);
  inner.reset();
  if (block.shortcut) x = pointwise(*block.shortcut, x);
  causal(block.second, std::move(normed), x, true);
  return x;
}

void VideoDecoder::attend(const LoadedVideoAttention& block, const Plane& x) {
  const auto places = x->height * x->width;
  const auto width = x->channels;
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  const auto normed = backend_.allocate(bytes(places * width));
  const auto qkv = backend_.allocate(bytes(places * 3 * width));
  const Rows dense = {normed.floats(), places, width, width};
  for (std::int64_t y = 0; y < x->height; ++y) {
    backend_.norm({.x = x->row(y),
                   .y = {dense.data + y * x->width * width, x->width, width, width},
                   .weight = block.norm.gamma.data(),
                   .eps = kNormEps});
  }
  backend_.matmul(dense, *block.qkv.taps.front(), {qkv.floats(), places, 3 * width, 3 * width},
                  {.bias = block.qkv.bias.data()});

  KvPool pool = {.spec = {.kv_heads = 1, .head_dim = width, .value_dim = width}, .memory = {}};
  std::vector<std::int32_t> pages(static_cast<std::size_t>((places + kPageTokens - 1) / kPageTokens));
  std::iota(pages.begin(), pages.end(), 0);
  pool.memory = backend_.allocate(pages.size() * backend_.kv_page_bytes(pool.spec));
  const std::array segments = {
      Segment{.first_row = 0, .rows = places, .first_position = 0, .pages = pages, .keys = places}};
  backend_.kv_write(pool, {qkv.floats() + width, places, width, 3 * width},
                    {qkv.floats() + 2 * width, places, width, 3 * width}, segments);
  AttentionArgs args;
  args.q = {qkv.floats(), places, width, 3 * width};
  args.out = dense;
  args.kv = &pool;
  args.segments = segments;
  args.heads = 1;
  args.scale = 1 / std::sqrt(static_cast<float>(width));
  args.causal = false;
  backend_.attend(args);

  const Rows out = {qkv.floats(), places, width, width};
  backend_.matmul(dense, *block.out.taps.front(), out, {.bias = block.out.bias.data()});
  for (std::int64_t y = 0; y < x->height; ++y)
    backend_.add({out.data + y * x->width * width, x->width, width, width}, x->row(y), 1);
  backend_.synchronize();
}

// Each place becomes four.
Plane VideoDecoder::upsample(const LoadedVideoConvolution& convolution, const Plane& x) {
  const auto wide = planes_.take(2 * x->height, 2 * x->width, x->channels);
  for (std::int64_t y = 0; y < x->height; ++y) {
    for (std::int64_t place = 0; place < x->width; ++place) {
      const float* from = x->at(y, place);
      float* to = wide->at(2 * y, 2 * place);
      std::copy_n(from, x->channels, to);
      std::copy_n(from, x->channels, to + x->channels);
    }
    std::copy_n(wide->at(2 * y, 0), wide->width * wide->channels, wide->at(2 * y + 1, 0));
  }
  auto y = planes_.take(wide->height, wide->width, convolution.outputs);
  const std::array<const PlaneData*, 1> frames = {wide.get()};
  convolve(convolution, frames, y, false);
  return y;
}

Plane VideoDecoder::norm_silu(const LoadedVideoNorm& norm, const Plane& x) {
  auto y = planes_.take(x->height, x->width, x->channels);
  backend_.norm({.x = x->all(), .y = y->all(), .weight = norm.gamma.data(), .eps = kNormEps});
  backend_.activate(y->all(), y->all(), Activation::silu);
  return y;
}

Plane VideoDecoder::pointwise(const LoadedVideoConvolution& convolution, const Plane& x) {
  auto y = planes_.take(x->height, x->width, convolution.outputs);
  const std::array<const PlaneData*, 1> frames = {x.get()};
  convolve(convolution, frames, y, false);
  return y;
}

void VideoDecoder::causal(const LoadedVideoConvolution& convolution, Plane x, const Plane& y,
                          bool accumulate) {
  auto& [earlier, last] = before_[convolution.number];
  const std::array<const PlaneData*, 3> frames = {earlier.get(), last.get(), x.get()};
  convolve(convolution, frames, y, accumulate);
  earlier = std::move(last);
  last = std::move(x);
}

// All places of the picture's rows are computed, those of the sides between them too: they lie in one line.
void VideoDecoder::convolve(const LoadedVideoConvolution& convolution,
                            std::span<const PlaneData* const> frames, const Plane& y, bool accumulate) {
  const auto reach = convolution.space / 2;
  const auto places = y->height * y->line() - 2;
  const auto piece = std::max(kLeastPlaces, kPieceFloats / (convolution.inputs + convolution.outputs));
  for (std::int64_t first = 0; first < places; first += piece) {
    const auto count = std::min(piece, places - first);
    const Rows out = {y->at(0, 0) + first * y->channels, count, y->channels, y->channels};
    bool adds = accumulate;
    const float* bias = convolution.bias.data();
    for (std::size_t tap = 0; tap < convolution.taps.size(); ++tap) {
      const auto* frame = frames[tap / static_cast<std::size_t>(convolution.space)];
      if (frame == nullptr) continue;
      const auto row = static_cast<std::int64_t>(tap) % convolution.space - reach;
      const float* from = frame->at(row, -reach) + first * convolution.inputs;
      const auto& matrix = *convolution.taps[tap];
      backend_.matmul({from, count, matrix.cols(), convolution.inputs}, matrix, out,
                      {.bias = bias, .accumulate = adds});
      adds = true;
      bias = nullptr;
    }
  }
  backend_.synchronize();
  y->clear_sides();
}

}  // namespace diffuse::codec
