// What was written is decoded again: pictures and animations exactly, videos nearly.

#include "media/picture_files.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "media/libav.hpp"
#include "tests/media/support.hpp"

namespace diffuse::test {
namespace {

using media::Codec;
using media::Frame;
using media::need;
using media::Packet;
using testing::HasSubstr;

// A slope of colours with a square that moves.
Frames moving(std::int64_t count, std::int64_t height, std::int64_t width) {
  Frames frames = {count, height, width, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const bool inside = y >= 4 && y < 12 && x >= 2 * i && x < 2 * i + 8;
        frames.pixels.push_back(static_cast<std::uint8_t>(inside ? 230 : 40 + 120 * x / width));
        frames.pixels.push_back(static_cast<std::uint8_t>(inside ? 30 : 200 - 150 * y / height));
        frames.pixels.push_back(static_cast<std::uint8_t>(inside ? 60 : 90 + 3 * i));
      }
    }
  }
  return frames;
}

// The packets' frames in turn.
class Decoder {
 public:
  explicit Decoder(const AVCodec* decoder) : codec_(need(avcodec_alloc_context3(need(decoder)))) {}
  AVCodecContext& context() { return *codec_; }

  void open() { ASSERT_GE(avcodec_open2(codec_.get(), nullptr, nullptr), 0); }
  void send(const AVPacket* packet, const std::function<void(const AVFrame&)>& take) {
    ASSERT_GE(avcodec_send_packet(codec_.get(), packet), 0);
    const Frame frame(need(av_frame_alloc()));
    while (avcodec_receive_frame(codec_.get(), frame.get()) >= 0) take(*frame);
  }

 private:
  Codec codec_;
};

// One picture's bytes -> its frame.
void decode_picture(AVCodecID kind, std::string bytes, const std::function<void(const AVFrame&)>& take) {
  Decoder decoder(avcodec_find_decoder(kind));
  decoder.open();
  const auto size = bytes.size();
  bytes.resize(size + AV_INPUT_BUFFER_PADDING_SIZE);
  const Packet packet(need(av_packet_alloc()));
  packet->data = reinterpret_cast<std::uint8_t*>(bytes.data());
  packet->size = static_cast<int>(size);
  decoder.send(packet.get(), take);
}

std::uint32_t number(const std::string& bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int i = count; i-- > 0;)
    value = value << 8 | static_cast<std::uint8_t>(bytes.at(at + static_cast<std::size_t>(i)));
  return value;
}

TEST(PictureFiles, png_holds_every_pixel) {
  for (const auto& [height, width] : {std::pair{16, 24}, std::pair{1, 1}, std::pair{33, 7}}) {
    const auto frames = moving(3, height, width);
    for (std::int64_t index = 0; index < 3; ++index) {
      int decoded = 0;
      decode_picture(AV_CODEC_ID_PNG, media::png_file(frames, index), [&](const AVFrame& frame) {
        ++decoded;
        ASSERT_EQ(frame.format, AV_PIX_FMT_RGB24);
        ASSERT_EQ(frame.height, height);
        ASSERT_EQ(frame.width, width);
        const auto expected = frames.frame(index);
        for (int y = 0; y < height; ++y) {
          const auto* row = frame.data[0] + std::ptrdiff_t{y} * frame.linesize[0];
          const auto at = static_cast<std::size_t>(y) * static_cast<std::size_t>(width) * 3;
          ASSERT_TRUE(std::equal(row, row + 3 * width, expected.begin() + static_cast<std::ptrdiff_t>(at)))
              << y;
        }
      });
      EXPECT_EQ(decoded, 1);
    }
  }
}

TEST(PictureFiles, webp_is_an_animation_of_every_frame) {
  const auto frames = moving(5, 18, 26);
  const auto file = media::webp_file(frames, 8);
  ASSERT_EQ(file.substr(0, 4) + file.substr(8, 4), "RIFFWEBP");
  EXPECT_EQ(number(file, 4, 4) + 8, file.size());
  std::size_t animated = 0;
  for (std::size_t at = 12; at + 8 <= file.size(); at += 8 + (number(file, at + 4, 4) + 1) / 2 * 2) {
    const auto kind = file.substr(at, 4);
    if (kind == "VP8X") {
      EXPECT_EQ(number(file, at + 12, 3) + 1, 26U);
      EXPECT_EQ(number(file, at + 15, 3) + 1, 18U);
    }
    if (kind == "ANIM") {
      EXPECT_EQ(number(file, at + 12, 2), 0U) << "it runs for ever";
    }
    if (kind != "ANMF") continue;
    EXPECT_EQ(number(file, at + 20, 3), 125U) << "milliseconds";
    if (animated++ > 0) continue;
    // The first frame is a whole picture.
    const auto picture = file.substr(at + 24, number(file, at + 4, 4) - 16);
    int decoded = 0;
    decode_picture(AV_CODEC_ID_WEBP, "RIFF" + little(picture.size() + 4, 4) + "WEBP" + picture,
                   [&](const AVFrame& frame) {
                     ++decoded;
                     ASSERT_EQ(frame.format, AV_PIX_FMT_ARGB);
                     ASSERT_EQ(frame.width, 26);
                     ASSERT_EQ(frame.height, 18);
                     for (int y = 0; y < 18; ++y) {
                       for (int x = 0; x < 26 * 3; ++x)
                         ASSERT_EQ(
                             frame.data[0][std::ptrdiff_t{y} * frame.linesize[0] + x / 3 * 4 + 1 + x % 3],
                             frames.pixels[static_cast<std::size_t>(y * 26 * 3 + x)]);
                     }
                   });
    EXPECT_EQ(decoded, 1);
  }
  EXPECT_EQ(animated, 5U);
}

// Of the pixels against those of a frame in BT.709.
double squares_of(const AVFrame& frame, std::span<const std::uint8_t> expected) {
  const int shift = frame.format == AV_PIX_FMT_YUV420P ? 1 : 0;
  double squares = 0;
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const auto value = [&](int plane, int by) {
        return static_cast<double>(
            frame.data[plane][std::ptrdiff_t{y >> by} * frame.linesize[plane] + (x >> by)]);
      };
      const double bright = (value(0, 0) - 16) * 255 / 219;
      const double blue = (value(1, shift) - 128) * 255 / 224;
      const double red = (value(2, shift) - 128) * 255 / 224;
      const double found[] = {bright + 1.5748 * red, bright - 0.1873 * blue - 0.4681 * red,
                              bright + 1.8556 * blue};
      const auto at = (static_cast<std::size_t>(y) * static_cast<std::size_t>(frame.width) +
                       static_cast<std::size_t>(x)) *
                      3;
      for (std::size_t i = 0; i < 3; ++i) squares += std::pow(found[i] - expected[at + i], 2);
    }
  }
  return squares;
}

TEST(PictureFiles, mp4_holds_the_frames_nearly) {
  const Folder folder;
  for (const auto& [height, width] : {std::pair{48, 64}, std::pair{33, 47}}) {
    const auto frames = moving(9, height, width);
    const auto path = folder.put("x.mp4", media::mp4_file(frames, 16));
    AVFormatContext* opened = nullptr;
    ASSERT_GE(avformat_open_input(&opened, path.c_str(), nullptr, nullptr), 0);
    using Input = std::unique_ptr<AVFormatContext, media::Freer<AVFormatContext, avformat_close_input>>;
    const Input input(opened);
    ASSERT_GE(avformat_find_stream_info(input.get(), nullptr), 0);
    ASSERT_EQ(input->nb_streams, 1U);
    const auto& stream = *input->streams[0];
    EXPECT_NEAR(av_q2d(stream.avg_frame_rate), 16, 0.01);
    EXPECT_NEAR(static_cast<double>(stream.duration) * av_q2d(stream.time_base), 9.0 / 16, 0.01);
    EXPECT_EQ(stream.codecpar->color_space, AVCOL_SPC_BT709);

    Decoder decoder(avcodec_find_decoder(stream.codecpar->codec_id));
    ASSERT_GE(avcodec_parameters_to_context(&decoder.context(), stream.codecpar), 0);
    decoder.open();
    std::int64_t decoded = 0;
    const auto take = [&](const AVFrame& frame) {
      ASSERT_LT(decoded, 9);
      ASSERT_EQ(frame.width, width);
      ASSERT_EQ(frame.height, height);
      const double mean = squares_of(frame, frames.frame(decoded++)) / (3.0 * height * width);
      EXPECT_GT(10 * std::log10(255.0 * 255.0 / mean), 28)
          << "frame " << decoded << " of " << height << " x " << width;
    };
    const Packet packet(need(av_packet_alloc()));
    while (av_read_frame(input.get(), packet.get()) >= 0) {
      decoder.send(packet.get(), take);
      av_packet_unref(packet.get());
    }
    decoder.send(nullptr, take);
    EXPECT_EQ(decoded, 9);
  }
}

// The GIF's frames, red, green and blue.
std::vector<std::vector<std::uint8_t>> frames_of_gif(const std::string& file) {
  const Folder folder;
  AVFormatContext* opened = nullptr;
  EXPECT_GE(avformat_open_input(&opened, folder.put("moving.gif", file).c_str(), nullptr, nullptr), 0);
  const std::unique_ptr<AVFormatContext, media::Freer<AVFormatContext, avformat_close_input>> input(opened);
  EXPECT_GE(avformat_find_stream_info(input.get(), nullptr), 0);
  Decoder decoder(avcodec_find_decoder(AV_CODEC_ID_GIF));
  EXPECT_GE(avcodec_parameters_to_context(&decoder.context(), input->streams[0]->codecpar), 0);
  decoder.open();
  std::vector<std::vector<std::uint8_t>> frames;
  const auto take = [&](const AVFrame& frame) {
    ASSERT_EQ(frame.format, AV_PIX_FMT_BGRA);
    auto& rgb = frames.emplace_back();
    for (int y = 0; y < frame.height; ++y) {
      for (int x = 0; x < frame.width; ++x) {
        const auto* pixel = frame.data[0] + std::ptrdiff_t{y} * frame.linesize[0] + std::ptrdiff_t{4} * x;
        EXPECT_EQ(pixel[3], 255);
        rgb.insert(rgb.end(), {pixel[2], pixel[1], pixel[0]});
      }
    }
  };
  const Packet packet(need(av_packet_alloc()));
  while (av_read_frame(input.get(), packet.get()) >= 0) {
    decoder.send(packet.get(), take);
    av_packet_unref(packet.get());
  }
  decoder.send(nullptr, take);
  return frames;
}

TEST(PictureFiles, a_gif_holds_few_colours_exactly_and_many_nearly) {
  // 16 colours, a square of which moves.
  auto few = moving(5, 16, 32);
  for (auto& pixel : few.pixels) pixel = static_cast<std::uint8_t>(pixel < 128 ? 20 : 220);
  const auto exact = frames_of_gif(media::gif_file(few, 16));
  ASSERT_EQ(exact.size(), 5U);
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(std::ranges::equal(exact[static_cast<std::size_t>(i)], few.frame(i))) << i;

  const auto many = moving(6, 64, 96);
  const auto near = frames_of_gif(media::gif_file(many, 12.5));
  ASSERT_EQ(near.size(), 6U);
  double sum = 0;
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::size_t at = 0; at < many.frame_bytes(); ++at)
      sum += std::abs(int{near[static_cast<std::size_t>(i)][at]} - int{many.frame(i)[at]});
  EXPECT_LT(sum / static_cast<double>(many.pixels.size()), 4.0);
}

TEST(PictureFiles, are_the_same_bytes_each_time) {
  const auto frames = moving(4, 32, 32);
  EXPECT_EQ(media::png_file(frames, 2), media::png_file(frames, 2));
  EXPECT_EQ(media::webp_file(frames, 12), media::webp_file(frames, 12));
  EXPECT_EQ(media::mp4_file(frames, 12), media::mp4_file(frames, 12));
  EXPECT_EQ(media::gif_file(frames, 12), media::gif_file(frames, 12));
}

TEST(PictureFiles, one_frame_is_a_video_too) {
  const auto frames = moving(1, 32, 32);
  EXPECT_GT(media::mp4_file(frames, 16).size(), 500U);
  EXPECT_GT(media::webp_file(frames, 16).size(), 50U);
}

TEST(PictureFiles, what_cannot_be_written_is_named) {
  const auto bad = [](const std::function<void()>& write) { return error_of(ExitCode::bad_data, write); };
  const auto frames = moving(2, 16, 16);
  EXPECT_THAT(bad([&] { media::mp4_file(frames, 0); }),
              HasSubstr("writing an MP4 video: 0.000000 frames a second"));
  EXPECT_THAT(bad([&] { media::gif_file(frames, 60); }), HasSubstr("shows 50 at most"));
  EXPECT_THAT(bad([&] { media::webp_file(frames, NAN); }), HasSubstr("frames a second"));
  EXPECT_THAT(bad([&] { media::mp4_file(Frames{}, 16); }), HasSubstr("there are no frames"));
  EXPECT_THAT(bad([&] {
                media::png_file({1, 1, 20000, std::vector<std::uint8_t>(60000)}, 0);
              }),
              HasSubstr("frames of 1 x 20000 pixels"));
  const auto own = [](const std::function<void()>& write) { return error_of(ExitCode::internal, write); };
  EXPECT_THAT(own([&] { media::png_file(frames, 2); }), HasSubstr("there is no frame 2"));
  EXPECT_THAT(own([&] { media::png_file({1, 2, 2, {1, 2, 3}}, 0); }), HasSubstr("whole frames"));
}

}  // namespace
}  // namespace diffuse::test
