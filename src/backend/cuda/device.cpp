#include "backend/cuda/device.hpp"

#include <array>
#include <cstdio>

#include "core/error.hpp"
#include "core/format.hpp"

namespace diffuse {
namespace cuda {
namespace {

// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    std::array<char, 3> pair{};
    std::snprintf(pair.data(), pair.size(), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += pair.data();
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

std::string versions() {
  int runtime = 0;
  int driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess)
    return {};
  return "; this build runs CUDA " + runtime_version(runtime) + ", and the driver here knows " +
         (driver == 0 ? "none" : "CUDA " + runtime_version(driver));
}

struct Cards {
  int count = 0;
  std::string problem;  // empty where there are some
};

Cards find_cards() {
  Cards cards;
  const auto error = cudaGetDeviceCount(&cards.count);
  if (error == cudaSuccess && cards.count > 0) return cards;
  cards.count = 0;
  // The error is told here, not by the next call.
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    cards.problem =
        "no CUDA card is visible here: install one, or look at CUDA_VISIBLE_DEVICES and what the "
        "scheduler gave this task (--gpus-per-task); --device cpu runs without one";
  } else if (error == cudaErrorInsufficientDriver) {
    cards.problem = "no NVIDIA driver that fits is installed here" + versions() +
                    ": install or update the driver; --device cpu runs without one";
  } else {
    cards.problem = std::string("the CUDA driver does not answer: cudaGetDeviceCount says ") +
                    cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")" + versions() +
                    "; --device cpu runs without it";
  }
  return cards;
}

}  // namespace

std::shared_ptr<Device> Device::open(int index) {
  const auto cards = find_cards();
  if (!cards.problem.empty()) throw_refused(cards.problem);
  if (index < 0 || index >= cards.count) {
    throw_refused("CUDA device " + std::to_string(index) + " is not there: " + std::to_string(cards.count) +
                  " are visible here, counted from 0");
  }
  return std::shared_ptr<Device>(new Device(index));
}

Device::Device(int index) : index_(index), releases_(std::make_shared<Releases>(index)) {
  use();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties", "asking what the card is");
  name_ = properties.name;
  id_ = uuid_text(properties.uuid);
  arch_ = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  processors_ = properties.multiProcessorCount;
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index_),
        "cudaDeviceGetAttribute", "asking for a block's shared memory");
  block_memory_ = bytes;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
        "making the stream of the work");
  stream_ = Stream(stream, releases_);
}

std::uint64_t Device::free_bytes() const {
  use();
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", "asking for the free memory");
  return free;
}

void Device::use() const {
  check(cudaSetDevice(index_), "cudaSetDevice", "choosing the card");
}

void Device::require_running(const std::string& doing) const {
  if (recording_ != nullptr) throw_internal("CUDA backend: " + doing + " cannot be recorded");
}

void Device::wait(const std::string& doing) const {
  require_running(doing);
  check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize", doing);
  releases_->tell();
}

Buffer Device::allocate(std::size_t bytes, const std::string& what) {
  if (bytes == 0) return {};
  require_running("taking memory for " + what);
  use();
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc", "taking " + human_bytes(bytes) + " for " + what);
  const auto release = [device = shared_from_this()](std::byte* data) {
    // cudaFree does not promise to wait. Where the wait fails the device is lost, and so is its memory.
    device->releases()->note(cudaStreamSynchronize(device->stream_.get()), "cudaStreamSynchronize");
    device->releases()->note(cudaFree(data), "cudaFree");
  };
  return {std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), release), bytes};
}

std::byte* Scratch::reserve(Device& device, std::size_t bytes, bool spare) {
  if (bytes > memory_.bytes()) {
    device.require_running("taking more memory for rows between two operations");
    device.moved();
    memory_ = {};
    memory_ = device.allocate(spare ? bytes + bytes / 2 : bytes, "rows between two operations");
  }
  return memory_.data();
}

}  // namespace cuda

int cuda_device_count() {
  return cuda::find_cards().count;
}

std::string why_no_cuda() {
  return cuda::find_cards().problem;
}

}  // namespace diffuse
