#include "media/picture_files.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

extern "C" {
#include <libavutil/log.h>
#include <libavutil/opt.h>
}

#include "core/error.hpp"
#include "media/libav.hpp"
#include "media/palette.hpp"

namespace diffuse::media {
namespace {

constexpr double kSlowest = 0.1;
constexpr double kFastest = 1000;
constexpr double kFastestGif = 50;
constexpr std::int64_t kLargestSide = 16383;  // of WebP, and of what H.264 decoders take

void expect(int code, const std::string& what) {
  if (code < 0) throw_io(what + " failed: " + reason(code));
}

void check(const Frames& frames, double rate, const std::string& what) {
  if (frames.count < 1) throw_bad_data(what + ": there are no frames");
  if (frames.height < 1 || frames.width < 1 || frames.height > kLargestSide || frames.width > kLargestSide)
    throw_bad_data(what + ": frames of " + std::to_string(frames.height) + " x " +
                   std::to_string(frames.width) + " pixels; a side has 1 to " + std::to_string(kLargestSide));
  if (frames.pixels.size() != static_cast<std::size_t>(frames.count) * frames.frame_bytes())
    throw_internal(what + ": the pixels are not those of whole frames");
  if (!(rate >= kSlowest && rate <= kFastest))
    throw_bad_data(what + ": " + std::to_string(rate) + " frames a second; 0.1 to 1000 are written");
}

// A frame's pixels -> an encoder's.
using Fill = std::function<void(const std::uint8_t* rgb, AVFrame& to)>;

void fill_rgb(const std::uint8_t* rgb, AVFrame& to) {
  for (int y = 0; y < to.height; ++y)
    std::copy_n(rgb + std::ptrdiff_t{3} * y * to.width, 3 * to.width,
                to.data[0] + std::ptrdiff_t{y} * to.linesize[0]);
}

// 32 bits a pixel, the highest of which are opaque.
void fill_opaque(const std::uint8_t* rgb, AVFrame& to) {
  for (int y = 0; y < to.height; ++y) {
    auto* row = reinterpret_cast<std::uint32_t*>(to.data[0] + std::ptrdiff_t{y} * to.linesize[0]);
    for (int x = 0; x < to.width; ++x, rgb += 3)
      row[x] = 0xff000000U | std::uint32_t{rgb[0]} << 16 | std::uint32_t{rgb[1]} << 8 | rgb[2];
  }
}

// A byte a pixel, and the colours beside them, opaque.
void fill_indexed(const Palette& palette, const std::uint8_t* rgb, AVFrame& to) {
  auto* colours = reinterpret_cast<std::uint32_t*>(to.data[1]);
  std::fill_n(colours, 256, 0xff000000U);
  for (std::size_t i = 0; i < palette.colours().size(); ++i) colours[i] |= palette.colours()[i];
  for (int y = 0; y < to.height; ++y) {
    auto* row = to.data[0] + std::ptrdiff_t{y} * to.linesize[0];
    for (int x = 0; x < to.width; ++x, rgb += 3) row[x] = palette.index_of(rgb[0], rgb[1], rgb[2]);
  }
}

struct Colour {
  double red = 0, green = 0, blue = 0;
};

// The mean of the pixels of a square of `size` that lie in the picture.
Colour mean_of(const std::uint8_t* rgb, const AVFrame& frame, int y, int x, int size) {
  Colour sum;
  int count = 0;
  for (int row = y; row < std::min(y + size, frame.height); ++row) {
    for (int column = x; column < std::min(x + size, frame.width); ++column, ++count) {
      const auto* pixel = rgb + (std::ptrdiff_t{row} * frame.width + column) * 3;
      sum = {sum.red + pixel[0], sum.green + pixel[1], sum.blue + pixel[2]};
    }
  }
  return {sum.red / count, sum.green / count, sum.blue / count};
}

// ITU-R BT.709 in the studio's range: 16 to 235, and 16 to 240 for the differences of colour.
constexpr double kRed = 0.2126;
constexpr double kBlue = 0.0722;
double luma(const Colour& c) {
  return kRed * c.red + (1 - kRed - kBlue) * c.green + kBlue * c.blue;
}
std::uint8_t byte_of(double value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
}

// `square`: 2 where four pixels share a colour, else 1.
void fill_yuv(const std::uint8_t* rgb, AVFrame& to, int square) {
  for (int y = 0; y < to.height; ++y) {
    for (int x = 0; x < to.width; ++x)
      to.data[0][std::ptrdiff_t{y} * to.linesize[0] + x] =
          byte_of(16 + luma(mean_of(rgb, to, y, x, 1)) * 219 / 255);
  }
  for (int y = 0; y < to.height; y += square) {
    for (int x = 0; x < to.width; x += square) {
      const auto colour = mean_of(rgb, to, y, x, square);
      const double bright = luma(colour);
      const auto at = [&](int plane) { return std::ptrdiff_t{y / square} * to.linesize[plane] + x / square; };
      to.data[1][at(1)] = byte_of(128 + (colour.blue - bright) / (2 - 2 * kBlue) * 224 / 255);
      to.data[2][at(2)] = byte_of(128 + (colour.red - bright) / (2 - 2 * kRed) * 224 / 255);
    }
  }
}

class Encoder {
 public:
  Encoder(const AVCodec& codec, const Frames& frames, AVPixelFormat format, double rate, std::string what)
      : frames_(frames),
        what_(std::move(what)),
        codec_(&codec),
        context_(need(avcodec_alloc_context3(&codec))),
        frame_(need(av_frame_alloc())),
        packet_(need(av_packet_alloc())) {
    // libav's messages would stand between the lines of the program, and its errors come back as codes.
    av_log_set_level(AV_LOG_QUIET);
    context_->width = static_cast<int>(frames.width);
    context_->height = static_cast<int>(frames.height);
    context_->pix_fmt = format;
    context_->framerate = av_d2q(rate, 1'000'000);
    context_->time_base = av_inv_q(context_->framerate);
    context_->thread_count = 1;  // how a picture is cut between threads shows in its bytes
    context_->flags |= AV_CODEC_FLAG_BITEXACT;
  }

  AVCodecContext& context() { return *context_; }
  void set(const char* name, const char* value) {
    expect(av_opt_set(context_.get(), name, value, AV_OPT_SEARCH_CHILDREN),
           what_ + ": setting '" + name + "'");
  }
  void open() {
    expect(avcodec_open2(context_.get(), codec_, nullptr), what_ + ": opening " + codec_->name);
    frame_->format = context_->pix_fmt;
    frame_->width = context_->width;
    frame_->height = context_->height;
  }

  // Frames [first, last), then `take` with each packet.
  void run(std::int64_t first, std::int64_t last, const Fill& fill,
           const std::function<void(AVPacket&)>& take) {
    for (std::int64_t index = first; index < last; ++index) {
      // An encoder may keep the frame before.
      av_frame_unref(frame_.get());
      frame_->format = context_->pix_fmt;
      frame_->width = context_->width;
      frame_->height = context_->height;
      expect(av_frame_get_buffer(frame_.get(), 0), what_ + ": memory of a frame");
      fill(frames_.frame(index).data(), *frame_);
      frame_->pts = index - first;
      send(frame_.get(), take);
    }
    send(nullptr, take);
  }

 private:
  void send(const AVFrame* frame, const std::function<void(AVPacket&)>& take) {
    expect(avcodec_send_frame(context_.get(), frame), what_ + ": encoding");
    int code = 0;
    while ((code = avcodec_receive_packet(context_.get(), packet_.get())) >= 0) {
      take(*packet_);
      av_packet_unref(packet_.get());
    }
    if (code != AVERROR(EAGAIN) && code != AVERROR_EOF) expect(code, what_ + ": encoding");
  }

  const Frames& frames_;
  std::string what_;
  const AVCodec* codec_;
  Codec context_;
  Frame frame_;
  Packet packet_;
};

// A file in memory of one stream.
class Container {
 public:
  Container(const char* format, std::string what) : what_(std::move(what)) {
    expect(avformat_alloc_output_context2(&context_, nullptr, format, nullptr), what_ + ": opening");
    context_->flags |= AVFMT_FLAG_BITEXACT;
    if (const int code = avio_open_dyn_buf(&context_->pb); code < 0) {
      avformat_free_context(context_);
      expect(code, what_ + ": opening");
    }
  }
  ~Container() {
    discard();
    avformat_free_context(context_);
  }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  bool wants_global_header() const { return (context_->oformat->flags & AVFMT_GLOBALHEADER) != 0; }
  void set(const char* name, const char* value) {
    expect(av_opt_set(context_, name, value, AV_OPT_SEARCH_CHILDREN), what_ + ": setting '" + name + "'");
  }
  void start(const AVCodecContext& encoder) {
    stream_ = need(avformat_new_stream(context_, nullptr));
    stream_->time_base = encoder.time_base;
    stream_->avg_frame_rate = encoder.framerate;
    expect(avcodec_parameters_from_context(stream_->codecpar, &encoder), what_ + ": describing its stream");
    expect(avformat_write_header(context_, nullptr), what_ + ": writing its header");
  }
  void write(AVPacket& packet, AVRational time_base) {
    packet.stream_index = 0;
    if (packet.duration == 0) packet.duration = 1;
    av_packet_rescale_ts(&packet, time_base, stream_->time_base);
    expect(av_interleaved_write_frame(context_, &packet), what_ + ": writing");
  }
  std::string finish() {
    expect(av_write_trailer(context_), what_ + ": writing its end");
    std::uint8_t* bytes = nullptr;
    const int size = avio_close_dyn_buf(context_->pb, &bytes);
    context_->pb = nullptr;
    const std::unique_ptr<std::uint8_t, decltype(&av_free)> owner(bytes, av_free);
    return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
  }

 private:
  void discard() {
    if (context_->pb == nullptr) return;
    std::uint8_t* bytes = nullptr;
    avio_close_dyn_buf(context_->pb, &bytes);
    av_free(bytes);
  }

  std::string what_;
  AVFormatContext* context_ = nullptr;
  AVStream* stream_ = nullptr;
};

std::string contained(Encoder& encoder, Container& container, const Frames& frames, const Fill& fill) {
  if (container.wants_global_header()) encoder.context().flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  encoder.open();
  container.start(encoder.context());
  encoder.run(0, frames.count, fill,
              [&](AVPacket& packet) { container.write(packet, encoder.context().time_base); });
  return container.finish();
}

}  // namespace

std::string png_file(const Frames& frames, std::int64_t index) {
  const std::string what = "writing a PNG picture";
  check(frames, 1, what);
  if (index < 0 || index >= frames.count)
    throw_internal(what + ": there is no frame " + std::to_string(index));
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
  if (codec == nullptr) throw_refused(what + ": this libav has no PNG encoder");
  Encoder encoder(*codec, frames, AV_PIX_FMT_RGB24, 1, what);
  encoder.open();
  std::string bytes;
  encoder.run(index, index + 1, fill_rgb, [&](AVPacket& packet) {
    bytes.append(reinterpret_cast<const char*>(packet.data), static_cast<std::size_t>(packet.size));
  });
  return bytes;
}

std::string webp_file(const Frames& frames, double frames_per_second) {
  const std::string what = "writing an animated WebP";
  check(frames, frames_per_second, what);
  const AVCodec* codec = avcodec_find_encoder_by_name("libwebp_anim");
  if (codec == nullptr)
    throw_refused(what + ": this libav was built without libwebp; export PNG pictures or MP4");
  Encoder encoder(*codec, frames, AV_PIX_FMT_RGB32, frames_per_second, what);
  encoder.set("lossless", "1");
  Container container("webp", what);
  container.set("loop", "0");
  return contained(encoder, container, frames, fill_opaque);
}

std::string gif_file(const Frames& frames, double frames_per_second) {
  const std::string what = "writing an animated GIF";
  check(frames, frames_per_second, what);
  if (frames_per_second > kFastestGif)
    throw_bad_data(what + ": " + std::to_string(frames_per_second) +
                   " frames a second, and a GIF shows 50 at most; export WebP or MP4");
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_GIF);
  if (codec == nullptr) throw_refused(what + ": this libav has no GIF encoder; export WebP or MP4");
  Encoder encoder(*codec, frames, AV_PIX_FMT_PAL8, frames_per_second, what);
  Container container("gif", what);
  container.set("loop", "0");
  const Palette palette(frames);
  return contained(encoder, container, frames,
                   [&](const std::uint8_t* rgb, AVFrame& to) { fill_indexed(palette, rgb, to); });
}

std::string mp4_file(const Frames& frames, double frames_per_second) {
  const std::string what = "writing an MP4 video";
  check(frames, frames_per_second, what);
  const AVCodec* h264 = avcodec_find_encoder_by_name("libx264");
  const AVCodec* codec = h264 != nullptr ? h264 : avcodec_find_encoder_by_name("mpeg4");
  if (codec == nullptr)
    throw_refused(what +
                  ": this libav has neither libx264 nor mpeg4; export PNG pictures or an animated WebP");
  const bool odd = frames.height % 2 != 0 || frames.width % 2 != 0;
  const int square = h264 != nullptr && odd ? 1 : 2;
  Encoder encoder(*codec, frames, square == 1 ? AV_PIX_FMT_YUV444P : AV_PIX_FMT_YUV420P, frames_per_second,
                  what);
  auto& context = encoder.context();
  context.color_range = AVCOL_RANGE_MPEG;
  context.colorspace = AVCOL_SPC_BT709;
  context.color_primaries = AVCOL_PRI_BT709;
  context.color_trc = AVCOL_TRC_BT709;
  if (h264 != nullptr) {
    encoder.set("crf", "16");
  } else {
    context.flags |= AV_CODEC_FLAG_QSCALE;
    context.global_quality = 2 * FF_QP2LAMBDA;
  }
  Container container("mp4", what);
  return contained(encoder, container, frames,
                   [square](const std::uint8_t* rgb, AVFrame& to) { fill_yuv(rgb, to, square); });
}

}  // namespace diffuse::media
