#include "job/wav.hpp"

#include <bit>
#include <cstring>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::uint16_t kFloats = 3;  // WAVE_FORMAT_IEEE_FLOAT
constexpr std::uint32_t kFormatBytes = 18;
constexpr std::uint32_t kFactBytes = 4;
constexpr std::uint32_t kChunkHead = 8;
constexpr std::int64_t kMostChannels = 1024;
constexpr std::int64_t kMostRate = 1 << 24;

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

template <typename Number>
void append(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_chunk(std::string& to, const char* name, std::uint32_t bytes) {
  to.append(name, 4);
  append(to, bytes);
}

}  // namespace

std::string wav_file(std::span<const float> samples, std::int64_t channels, std::int64_t rate) {
  if (channels < 1 || channels > kMostChannels || rate < 1 || rate > kMostRate) {
    throw_bad_data("writing a WAV file: " + std::to_string(channels) + " channels at " +
                   std::to_string(rate) + " samples a second are none that such a file holds");
  }
  const auto each = static_cast<std::size_t>(channels);
  if (samples.size() % each != 0) throw_internal("writing a WAV file: the samples are not whole frames");
  constexpr std::uint64_t kBefore = 4 + 3 * kChunkHead + kFormatBytes + kFactBytes;
  const std::uint64_t data = samples.size_bytes();
  if (data > 0xffffffffU - kBefore) {
    throw_bad_data("writing a WAV file: " + std::to_string(samples.size() / each) +
                   " frames are over the 4 GB that such a file holds");
  }
  std::string file;
  file.reserve(kChunkHead + kBefore + data);
  append_chunk(file, "RIFF", static_cast<std::uint32_t>(kBefore + data));
  file += "WAVE";
  append_chunk(file, "fmt ", kFormatBytes);
  append(file, kFloats);
  append(file, static_cast<std::uint16_t>(channels));
  append(file, static_cast<std::uint32_t>(rate));
  const auto frame_bytes = static_cast<std::uint32_t>(channels * 4);
  append(file, static_cast<std::uint32_t>(rate) * frame_bytes);
  append(file, static_cast<std::uint16_t>(frame_bytes));
  append(file, std::uint16_t{32});  // bits a sample
  append(file, std::uint16_t{0});   // nothing more
  append_chunk(file, "fact", kFactBytes);
  append(file, static_cast<std::uint32_t>(samples.size() / each));
  append_chunk(file, "data", static_cast<std::uint32_t>(data));
  file.append(reinterpret_cast<const char*>(samples.data()), data);
  return file;
}

}  // namespace diffuse
