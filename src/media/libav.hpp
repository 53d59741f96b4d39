#pragma once
// What the files that use libav share: owners of its structures, its errors as text. Private to this folder.

#include <array>
#include <memory>
#include <new>
#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/error.h>
}

namespace diffuse::media {

template <typename T, void (*Free)(T**)>
struct Freer {
  void operator()(T* pointer) const { Free(&pointer); }
};
using Codec = std::unique_ptr<AVCodecContext, Freer<AVCodecContext, avcodec_free_context>>;
using Packet = std::unique_ptr<AVPacket, Freer<AVPacket, av_packet_free>>;
using Frame = std::unique_ptr<AVFrame, Freer<AVFrame, av_frame_free>>;

inline std::string reason(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data();
}

template <typename T>
T* need(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

}  // namespace diffuse::media
