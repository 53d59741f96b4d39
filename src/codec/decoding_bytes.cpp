// Walks a video codec as its decoder does and counts planes: each convolution that sees earlier frames keeps
// two of its input, and of each size and width three more are in use at once.

#include <algorithm>
#include <map>
#include <tuple>

#include "codec/video_decoder.hpp"
#include "core/size.hpp"

namespace diffuse::codec {
namespace {

class Count {
 public:
  explicit Count(const LatentSize& size) : height_(size.height), width_(size.width) {}

  void convolution(const VideoConvolution& each) {
    use(each.inputs, each.time > 1 ? 2 : 0);
    use(each.outputs, 0);
  }
  void residual(const VideoResidual& each) {
    convolution(each.first);
    convolution(each.second);
  }
  void upsample(const VideoUpsampler& each) {
    if (each.time) use(each.time->inputs, 2);
    height_ *= 2;
    width_ *= 2;
    use(each.space.inputs, 0, 1);
    use(each.space.outputs, 0);
  }
  // One normed copy, query, key and value, and the latter two once more in pages.
  void attention(std::int64_t channels) {
    const auto places =
        CheckedSize(static_cast<std::uint64_t>(height_)) * static_cast<std::uint64_t>(width_) +
        static_cast<std::uint64_t>(kPageTokens);
    extra_ = places * static_cast<std::uint64_t>(channels) * sizeof(float) * 6;
  }

  std::uint64_t bytes() const {
    CheckedSize sum = extra_;
    for (const auto& [shape, planes] : planes_) {
      const auto [height, width, channels] = shape;
      const std::int64_t floats[] = {height + 2, width + 2, channels, planes.kept + planes.at_once};
      sum = sum + CheckedSize(count_of(floats)) * sizeof(float);
    }
    return sum.value();
  }

 private:
  struct Planes {
    std::int64_t kept = 0;
    std::int64_t at_once = 0;  // beside them
  };

  // Of that many channels, at the present size.
  void use(std::int64_t channels, std::int64_t kept, std::int64_t at_once = 3) {
    auto& planes = planes_[{height_, width_, channels}];
    planes.kept += kept;
    planes.at_once = std::max(planes.at_once, at_once);
  }

  std::int64_t height_, width_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Planes> planes_;
  CheckedSize extra_;
};

}  // namespace

std::uint64_t decoding_bytes(const VideoCodec& codec, const LatentSize& size) {
  Count count(size);
  count.convolution(codec.bridge);
  count.convolution(codec.first);
  count.residual(codec.middle_in);
  count.attention(codec.middle.norm.channels);
  count.residual(codec.middle_out);
  for (const auto& stage : codec.stages) {
    for (const auto& each : stage.residuals) count.residual(each);
    if (stage.upsampler) count.upsample(*stage.upsampler);
  }
  count.convolution(codec.last);
  return count.bytes();
}

}  // namespace diffuse::codec
