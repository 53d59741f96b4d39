// The pretend devices, the runtime's state, and errors.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "standin_faults.hpp"
#include "state.hpp"

namespace standin {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void write_uuid(int physical, char (&bytes)[16]) {
  std::memset(bytes, 0x5d, sizeof bytes);
  bytes[15] = static_cast<char>(physical);
}

// As nvidia-smi writes it.
std::string uuid_text(int physical) {
  char bytes[16];
  write_uuid(physical, bytes);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(bytes[i]));
    text += pair;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// The list ends before the first entry that is no device, as CUDA has it.
std::vector<int> visible_devices(int count) {
  std::vector<int> devices;
  const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) {
    for (int i = 0; i < count; ++i) devices.push_back(i);
    return devices;
  }
  std::stringstream list(chosen);
  for (std::string entry; std::getline(list, entry, ',');) {
    int device = -1;
    for (int i = 0; i < count; ++i) {
      const bool by_uuid = entry.starts_with("GPU-") && uuid_text(i).starts_with(entry);
      if (entry == std::to_string(i) || by_uuid) device = i;
    }
    if (device < 0 || std::find(devices.begin(), devices.end(), device) != devices.end()) break;
    devices.push_back(device);
  }
  return devices;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& text_of(cudaError_t error) {
  for (const auto& each : kErrors) {
    if (each.error == error) return each;
  }
  static constexpr ErrorText kUnknown{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  return kUnknown;
}

constexpr int kRuntimeVersion = 13000;
constexpr int kMultiprocessors = 4;
constexpr int kMajor = 9;

}  // namespace

// Never destroyed: memory may be freed by other objects at the very end of a process.
Runtime& Runtime::get() {
  static auto* instance = new Runtime;
  return *instance;
}

Runtime::Runtime() {
  const char* driver = std::getenv("DIFFUSE_STANDIN_DRIVER");
  has_driver_ = driver == nullptr || std::strcmp(driver, "none") != 0;
  if (has_driver_)
    devices_ = visible_devices(static_cast<int>(number_from_environment("DIFFUSE_STANDIN_DEVICES", 1)));
  device_bytes_ = number_from_environment("DIFFUSE_STANDIN_MEMORY", device_bytes_);
  const char* text = std::getenv("DIFFUSE_STANDIN_ORDER");
  const std::string order = text == nullptr ? "lazy" : text;
  if (order == "eager") {
    order_ = Order::eager;
  } else if (order.starts_with("random:")) {
    order_ = Order::random;
    random_.seed(static_cast<unsigned>(std::stoul(order.substr(7))));
  } else if (order != "lazy") {
    violation("DIFFUSE_STANDIN_ORDER is neither lazy, eager nor random:SEED");
  }
}

cudaError_t begin_call(const char* function, cudaError_t fault) {
  const auto code = injected(function, fault);
  return code ? static_cast<cudaError_t>(*code) : cudaSuccess;
}

cudaError_t end_call(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;  // "not ready" too, as in the real runtime
  return error;
}

int current_device() {
  return device_of_thread;
}

int physical_device(int device) {
  return Runtime::get().devices().at(static_cast<std::size_t>(device));
}

}  // namespace standin

using standin::begin_call;
using standin::end_call;
using standin::Runtime;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return standin::text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return standin::text_of(error).text;
}

cudaError_t cudaGetLastError(void) {
  const auto error = standin::last_error;
  standin::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return standin::last_error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (const auto fault = begin_call("cudaDriverGetVersion"); fault != cudaSuccess) return end_call(fault);
  *version = Runtime::get().has_driver() ? standin::kRuntimeVersion : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (const auto fault = begin_call("cudaRuntimeGetVersion"); fault != cudaSuccess) return end_call(fault);
  *version = standin::kRuntimeVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (const auto fault = begin_call("cudaGetDeviceCount"); fault != cudaSuccess) return end_call(fault);
  *count = static_cast<int>(Runtime::get().devices().size());
  if (!Runtime::get().has_driver()) return end_call(cudaErrorInsufficientDriver);
  return end_call(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (const auto fault = begin_call("cudaSetDevice"); fault != cudaSuccess) return end_call(fault);
  if (device < 0 || device >= static_cast<int>(Runtime::get().devices().size()))
    return end_call(cudaErrorInvalidDevice);
  standin::device_of_thread = device;
  return end_call(Runtime::get().failure());
}

cudaError_t cudaGetDevice(int* device) {
  if (const auto fault = begin_call("cudaGetDevice"); fault != cudaSuccess) return end_call(fault);
  *device = standin::device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto fault = begin_call("cudaGetDeviceProperties"); fault != cudaSuccess) return end_call(fault);
  if (device < 0 || device >= static_cast<int>(Runtime::get().devices().size()))
    return end_call(cudaErrorInvalidDevice);
  *properties = {};
  const char* name = std::getenv("DIFFUSE_STANDIN_NAME");
  std::snprintf(properties->name, sizeof properties->name, "%s", name == nullptr ? "Stand-in" : name);
  standin::write_uuid(standin::physical_device(device), properties->uuid.bytes);
  properties->totalGlobalMem = Runtime::get().device_bytes();
  properties->major = standin::kMajor;
  properties->minor = 0;
  properties->multiProcessorCount = standin::kMultiprocessors;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const auto fault = begin_call("cudaDeviceGetAttribute"); fault != cudaSuccess) return end_call(fault);
  if (device < 0 || device >= static_cast<int>(Runtime::get().devices().size()))
    return end_call(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = standin::kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = standin::kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
  }
  return end_call(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const auto fault = begin_call("cudaDeviceGetPCIBusId"); fault != cudaSuccess) return end_call(fault);
  if (device < 0 || device >= static_cast<int>(Runtime::get().devices().size()))
    return end_call(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                static_cast<unsigned>(standin::physical_device(device)) + 1U);
  return cudaSuccess;
}

}  // extern "C"
