#include "media/sound.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

extern "C" {
#include <libavutil/log.h>
}

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "media/libav.hpp"
#include "media/log_mel.hpp"
#include "media/resample.hpp"

namespace diffuse::media {
namespace {

constexpr std::int64_t kMostSeconds = std::int64_t{12} * 3600;
constexpr double kShortfall = 0.1;  // seconds that may be missing against what the file states
// Containers that hold their sound themselves. Playlists (hls, concat, dash, …) would open other files.
constexpr const char* kContainers =
    "wav,w64,flac,mp3,ogg,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,aac,aiff,au,avi,mpegts,mpeg,asf,caf,amr,flv";

using Input = std::unique_ptr<AVFormatContext, Freer<AVFormatContext, avformat_close_input>>;

Input open_input(const std::filesystem::path& path, const std::string& what) {
  // libav's messages would stand between the lines of the program, and its errors come back as codes.
  av_log_set_level(AV_LOG_QUIET);
  AVDictionary* options = nullptr;
  av_dict_set(&options, "protocol_whitelist", "file", 0);
  av_dict_set(&options, "format_whitelist", kContainers, 0);
  AVFormatContext* context = nullptr;
  // A name like "http:x" is a file's name here and no address.
  const std::string name = "file:" + path.string();
  const int failed = avformat_open_input(&context, name.c_str(), nullptr, &options);
  av_dict_free(&options);
  if (failed == AVERROR(ENOENT) || failed == AVERROR(EACCES) || failed == AVERROR(EISDIR))
    throw_missing(what + " cannot be opened: " + std::strerror(AVUNERROR(failed)));
  if (failed == AVERROR(EIO)) throw_io(what + ": reading it failed");
  if (failed < 0)
    throw_bad_data(
        what +
        " is no sound file that this program reads (WAV, FLAC, MP3, Ogg, M4A or a video): " + reason(failed));
  return Input(context);
}

Codec open_codec(const AVStream& stream, const std::string& what) {
  const AVCodec* decoder = avcodec_find_decoder(stream.codecpar->codec_id);
  if (decoder == nullptr)
    throw_bad_data(what + ": libavcodec has no decoder for its sound (" +
                   avcodec_get_name(stream.codecpar->codec_id) + "); convert it to WAV or FLAC");
  Codec codec(need(avcodec_alloc_context3(decoder)));
  int failed = avcodec_parameters_to_context(codec.get(), stream.codecpar);
  codec->pkt_timebase = stream.time_base;
  const AVCodecDescriptor* kind = avcodec_descriptor_get(stream.codecpar->codec_id);
  // A lossless file has checksums to be held to. In the others small faults are everyday, and inaudible.
  if (kind != nullptr && (kind->props & AV_CODEC_PROP_LOSSLESS) != 0)
    codec->err_recognition |= AV_EF_CRCCHECK | AV_EF_EXPLODE;
  if (failed >= 0) failed = avcodec_open2(codec.get(), decoder, nullptr);
  if (failed < 0) throw_bad_data(what + ": its sound cannot be decoded: " + reason(failed));
  return codec;
}

template <typename T>
double sample_at(const AVFrame& frame, int channel, int channels, int index, bool planar) {
  const auto* data =
      reinterpret_cast<const T*>(planar ? frame.extended_data[channel] : frame.extended_data[0]);
  const T value = planar ? data[index] : data[static_cast<std::ptrdiff_t>(index) * channels + channel];
  if constexpr (std::is_same_v<T, std::uint8_t>) return (static_cast<double>(value) - 128) / 128;
  if constexpr (std::is_same_v<T, std::int16_t>) return static_cast<double>(value) / 32768;
  if constexpr (std::is_same_v<T, std::int32_t>) return static_cast<double>(value) / 2147483648.0;
  if constexpr (std::is_same_v<T, std::int64_t>) return static_cast<double>(value) / 9223372036854775808.0;
  return static_cast<double>(value);
}

template <typename T>
void mix(const AVFrame& frame, bool planar, std::vector<float>& out) {
  const int channels = frame.ch_layout.nb_channels;
  for (int i = 0; i < frame.nb_samples; ++i) {
    double sum = 0;
    for (int channel = 0; channel < channels; ++channel)
      sum += sample_at<T>(frame, channel, channels, i, planar);
    out.push_back(static_cast<float>(sum / channels));
  }
}

class Decoder {
 public:
  explicit Decoder(const std::filesystem::path& path)
      : what_("sound file '" + visible(path.string()) + "'"),
        input_(open_input(path, what_)),
        packet_(need(av_packet_alloc())),
        frame_(need(av_frame_alloc())) {
    const int failed = avformat_find_stream_info(input_.get(), nullptr);
    if (failed < 0) throw_bad_data(what_ + " is damaged: " + reason(failed));
    stream_ = av_find_best_stream(input_.get(), AVMEDIA_TYPE_AUDIO, -1, -1, nullptr, 0);
    if (stream_ < 0) throw_bad_data(what_ + " has no sound in it");
    codec_ = open_codec(*input_->streams[stream_], what_);
  }

  Sound all() {
    int failed = 0;
    while ((failed = av_read_frame(input_.get(), packet_.get())) >= 0) {
      if (packet_->stream_index == stream_) send(packet_.get());
      av_packet_unref(packet_.get());
    }
    if (failed != AVERROR_EOF) throw_bad_data(what_ + " is damaged" + place() + ": " + reason(failed));
    send(nullptr);
    if (sound_.samples.empty()) throw_bad_data(what_ + " holds no samples: it is empty or damaged");
    check_length();
    return std::move(sound_);
  }

 private:
  // Junk before the first and behind the last good frame is common (tags, half frames of a cut stream);
  // between two good ones it is damage.
  void send(const AVPacket* packet) {
    const int failed = avcodec_send_packet(codec_.get(), packet);
    if (failed == AVERROR(ENOMEM)) throw std::bad_alloc();
    if (failed < 0 && failed != AVERROR_EOF && failed != AVERROR(EAGAIN)) note_junk(failed);
    receive();
  }

  void receive() {
    int failed = 0;
    while ((failed = avcodec_receive_frame(codec_.get(), frame_.get())) >= 0) {
      take(*frame_);
      av_frame_unref(frame_.get());
    }
    if (failed != AVERROR(EAGAIN) && failed != AVERROR_EOF) note_junk(failed);
  }

  void note_junk(int code) {
    if (!sound_.samples.empty()) junk_ = code;
  }

  void take(const AVFrame& frame) {
    if (junk_ != 0) throw_bad_data(what_ + " is damaged" + place() + ": " + reason(junk_));
    if (frame.ch_layout.nb_channels < 1 || frame.sample_rate < 1)
      throw_bad_data(what_ + " is damaged: it states no channels or no rate");
    if (sound_.rate == 0) {
      sound_.rate = frame.sample_rate;
      if (sound_.rate < kLowestRate || sound_.rate > kHighestRate)
        throw_bad_data(what_ + " has " + std::to_string(sound_.rate) + " samples a second, and " +
                       std::to_string(kLowestRate) + " to " + std::to_string(kHighestRate) + " are read");
    }
    if (frame.sample_rate != sound_.rate)
      throw_bad_data(what_ + " changes its rate from " + std::to_string(sound_.rate) + " to " +
                     std::to_string(frame.sample_rate) + " Hz" + place() + "; convert it to one rate");
    mix_in(frame);
    if (static_cast<std::int64_t>(sound_.samples.size()) > kMostSeconds * sound_.rate)
      throw_bad_data(what_ + " is longer than 12 hours; cut it into parts");
  }

  void mix_in(const AVFrame& frame) {
    const auto format = static_cast<AVSampleFormat>(frame.format);
    const bool planar = av_sample_fmt_is_planar(format) != 0;
    switch (av_get_packed_sample_fmt(format)) {
      case AV_SAMPLE_FMT_U8:
        return mix<std::uint8_t>(frame, planar, sound_.samples);
      case AV_SAMPLE_FMT_S16:
        return mix<std::int16_t>(frame, planar, sound_.samples);
      case AV_SAMPLE_FMT_S32:
        return mix<std::int32_t>(frame, planar, sound_.samples);
      case AV_SAMPLE_FMT_S64:
        return mix<std::int64_t>(frame, planar, sound_.samples);
      case AV_SAMPLE_FMT_FLT:
        return mix<float>(frame, planar, sound_.samples);
      case AV_SAMPLE_FMT_DBL:
        return mix<double>(frame, planar, sound_.samples);
      default:
        throw_bad_data(what_ + " holds samples of a kind that this program does not read; convert it to WAV");
    }
  }

  // Only where the file itself states its length: one that libav guessed from a bit rate says nothing. (A WAV
  // that ends before its header says is read to its end: recorders that are stopped leave such files.)
  void check_length() const {
    const AVStream& stream = *input_->streams[stream_];
    if (input_->duration_estimation_method == AVFMT_DURATION_FROM_BITRATE || stream.duration <= 0) return;
    const double stated = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
    const double found = static_cast<double>(sound_.samples.size()) / static_cast<double>(sound_.rate);
    if (found + kShortfall < stated)
      throw_bad_data(what_ + " is cut short: it states " + std::to_string(stated) + " s and holds " +
                     std::to_string(found) + " s");
  }

  std::string place() const {
    if (sound_.rate == 0) return "";
    return " after " +
           std::to_string(static_cast<double>(sound_.samples.size()) / static_cast<double>(sound_.rate)) +
           " s";
  }

  std::string what_;
  Input input_;
  Codec codec_;
  Packet packet_;
  Frame frame_;
  int stream_ = -1;
  int junk_ = 0;
  Sound sound_;
};

}  // namespace

Sound read_sound(const std::filesystem::path& path) {
  return Decoder(path).all();
}

Sound read_speech(const std::filesystem::path& path) {
  const Sound sound = read_sound(path);
  if (const auto flaw = sound_flaw(sound.samples, sound.rate); !flaw.empty())
    throw_bad_data("sound file '" + visible(path.string()) + "' holds " + flaw);
  return {resample(sound.samples, sound.rate, kSpeechRate), kSpeechRate};
}

}  // namespace diffuse::media
