// Memory of the pretend devices, pinned host memory, and copies between them.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "standin_faults.hpp"
#include "state.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace standin {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kZone = 256;  // behind each allocation
constexpr std::size_t kArenaBytes = std::size_t{64} << 30;
// Fresh and freed memory hold NaN in every float type, and numbers that no index may have.
constexpr int kPoison = 0xff;
constexpr unsigned char kZoneByte = 0xa5;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

std::byte* bytes_of(const void* memory) {
  return static_cast<std::byte*>(const_cast<void*>(memory));
}

const Allocation* find_in(const std::map<const std::byte*, Allocation>& live, const void* data,
                          std::size_t bytes) {
  auto found = live.upper_bound(bytes_of(data));
  if (found == live.begin()) return nullptr;
  --found;
  const auto offset = static_cast<std::size_t>(bytes_of(data) - found->first);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return &found->second;
}

}  // namespace

Arena::Arena() : size_(kArenaBytes) {
  const int file = memfd_create("pretend devices", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size_)) != 0)
    violation("no room for the pretend devices' memory");
  const char* protect = std::getenv("DIFFUSE_STANDIN_PROTECT");
  protect_ = protect != nullptr && std::strcmp(protect, "0") != 0;
  const int shown = protect_ ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* base = mmap(nullptr, size_, shown, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* second = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (base == MAP_FAILED || second == MAP_FAILED) violation("no room for the pretend devices' memory");
  ::close(file);
  base_ = static_cast<std::byte*>(base);
  second_ = static_cast<std::byte*>(second);
}

std::byte* Arena::reach(const void* data) const {
  return second_ + (bytes_of(data) - base_);
}

void Arena::open() {
  if (open_++ == 0 && protect_ && high_ > 0) mprotect(base_, round_up(high_, 4096), PROT_READ | PROT_WRITE);
}

void Arena::close() {
  if (--open_ == 0 && protect_ && high_ > 0) mprotect(base_, round_up(high_, 4096), PROT_NONE);
}

void Arena::begin_work() {
  if (at_work_) return;
  at_work_ = true;
  open();
}

void Arena::end_work() {
  if (!at_work_) return;
  at_work_ = false;
  close();
}

void* Arena::allocate(std::size_t bytes, int device) {
  auto& runtime = Runtime::get();
  if (bytes > runtime.device_bytes() - std::min(runtime.device_bytes(), used(device))) return nullptr;
  const std::size_t reserved = round_up(bytes, kAlignment) + kZone;
  std::byte* memory = nullptr;
  std::size_t got = reserved;
  const auto found = free_.lower_bound(reserved);
  if (found != free_.end() && found->first <= 2 * reserved) {
    got = found->first;
    memory = found->second;
    free_.erase(found);
  } else {
    if (size_ - high_ < reserved) return nullptr;
    memory = base_ + high_;
    const std::size_t before = round_up(high_, 4096);
    high_ += reserved;
    const std::size_t now = round_up(high_, 4096);
    if (open_ > 0 && protect_ && now > before) mprotect(base_ + before, now - before, PROT_READ | PROT_WRITE);
  }
  std::memset(reach(memory), kPoison, bytes);
  std::memset(reach(memory) + bytes, kZoneByte, got - bytes);
  ASAN_UNPOISON_MEMORY_REGION(memory, got);
  ASAN_POISON_MEMORY_REGION(memory + bytes, got - bytes);
  live_[memory] = {runtime.next_serial(), bytes, got, device};
  serials_.insert(live_[memory].serial);
  return memory;
}

void Arena::release(const void* memory) {
  const auto found = live_.find(bytes_of(memory));
  auto* data = bytes_of(memory);
  const Allocation allocation = found->second;
  live_.erase(found);
  serials_.erase(allocation.serial);
  for (std::size_t i = allocation.bytes; i < allocation.reserved; ++i) {
    if (static_cast<unsigned char>(reach(data)[i]) != kZoneByte)
      violation("device memory was written " + std::to_string(i - allocation.bytes) +
                " bytes behind the end of an allocation of " + std::to_string(allocation.bytes));
  }
  std::memset(reach(data), kPoison, allocation.reserved);
  ASAN_POISON_MEMORY_REGION(data, allocation.reserved);
  free_.emplace(allocation.reserved, data);
}

std::size_t Arena::used(int device) const {
  std::size_t total = 0;
  for (const auto& [memory, allocation] : live_) total += allocation.device == device ? allocation.bytes : 0;
  return total;
}

const Allocation* Arena::find(const void* data, std::size_t bytes) const {
  return find_in(live_, data, bytes);
}

void* Runtime::allocate_pinned(std::size_t bytes) {
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) return nullptr;
  std::memset(memory, kPoison, bytes);
  pinned_[bytes_of(memory)] = {next_serial_++, bytes, bytes, -1};
  return memory;
}

bool Runtime::release_pinned(const void* memory) {
  const auto found = pinned_.find(bytes_of(memory));
  if (found == pinned_.end()) return false;
  must_be_unused(found->second.serial, "cudaFreeHost");
  pinned_.erase(found);
  std::free(bytes_of(memory));
  return true;
}

bool Runtime::alive(std::uint64_t serial) const {
  return arena_.alive(serial) || std::any_of(pinned_.begin(), pinned_.end(),
                                             [&](const auto& each) { return each.second.serial == serial; });
}

const Allocation* Runtime::find_pinned(const void* data, std::size_t bytes) const {
  return find_in(pinned_, data, bytes);
}

bool is_device_memory(const void* data, std::size_t bytes) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return runtime.arena().find(data, bytes) != nullptr;
}

bool is_pinned_memory(const void* data, std::size_t bytes) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return runtime.find_pinned(data, bytes) != nullptr;
}

int device_of_memory(const void* data) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  const auto* allocation = runtime.arena().find(data, 1);
  return allocation == nullptr ? -1 : allocation->device;
}

void* reach(const void* device_memory) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return runtime.arena().reach(device_memory);
}

DeviceAccess::DeviceAccess() {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  runtime.arena().open();
}

DeviceAccess::~DeviceAccess() {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  runtime.arena().close();
}

namespace {

// Where one side of a copy lies.
enum class Place { pageable, pinned, device, nowhere };

struct Side {
  Place place = Place::nowhere;
  std::uint64_t serial = 0;
};

// [rows] runs of `width` bytes, `pitch` apart.
struct Plane {
  std::byte* data = nullptr;
  std::size_t pitch = 0;
};

std::size_t span_of(std::size_t pitch, std::size_t width, std::size_t rows) {
  return rows == 0 || width == 0 ? 0 : pitch * (rows - 1) + width;
}

Side place_of(const void* data, std::size_t bytes) {
  auto& runtime = Runtime::get();
  if (const auto* device = runtime.arena().find(data, bytes)) return {Place::device, device->serial};
  if (runtime.arena().find(data, 1) != nullptr) return {};  // over an allocation's end
  if (const auto* pinned = runtime.find_pinned(data, bytes)) return {Place::pinned, pinned->serial};
  if (runtime.find_pinned(data, 1) != nullptr) return {};
  return {Place::pageable, 0};
}

void copy_rows(Plane to, Plane from, std::size_t width, std::size_t rows) {
  for (std::size_t row = 0; row < rows; ++row)
    std::memmove(to.data + row * to.pitch, from.data + row * from.pitch, width);
}

bool fits(cudaMemcpyKind kind, Place to, Place from) {
  const bool device_to = to == Place::device;
  const bool device_from = from == Place::device;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !device_to && !device_from;
    case cudaMemcpyHostToDevice:
      return device_to && !device_from;
    case cudaMemcpyDeviceToHost:
      return !device_to && device_from;
    case cudaMemcpyDeviceToDevice:
      return device_to && device_from;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

cudaError_t copy(Plane to, Plane from, std::size_t width, std::size_t rows, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  auto& runtime = Runtime::get();
  if (width == 0 || rows == 0) return cudaSuccess;
  if (to.pitch < width || from.pitch < width) return cudaErrorInvalidPitchValue;
  const Side target = place_of(to.data, span_of(to.pitch, width, rows));
  const Side source = place_of(from.data, span_of(from.pitch, width, rows));
  if (target.place == Place::nowhere || source.place == Place::nowhere)
    violation("a copy goes over the end of an allocation");
  if (!fits(kind, target.place, source.place))
    violation("a copy's direction is not that of its pointers: memory freed or of another kind");
  const bool pageable = target.place == Place::pageable || source.place == Place::pageable;
  if (pageable && runtime.is_stream(stream) && stream->capture)
    return runtime.spoil(stream, cudaErrorStreamCaptureUnsupported);
  if (target.place == Place::device) to.data = runtime.arena().reach(to.data);
  if (source.place == Place::device) from.data = runtime.arena().reach(from.data);
  Item item;
  item.access = Access::indifferent;
  if (target.serial != 0) item.uses.push_back(target.serial);
  if (source.serial != 0) item.uses.push_back(source.serial);
  if (source.place == Place::pageable) {
    // Pageable memory is read before the call returns.
    auto held = std::make_shared<std::vector<std::byte>>(width * rows);
    copy_rows({held->data(), width}, from, width, rows);
    item.run = [=] {
      copy_rows(to, {held->data(), width}, width, rows);
      return true;
    };
  } else {
    item.run = [=] {
      copy_rows(to, from, width, rows);
      return true;
    };
  }
  if (const auto error = runtime.queue(stream, std::move(item)); error != cudaSuccess) return error;
  if (target.place != Place::pageable) return cudaSuccess;
  // A copy to pageable memory has been made when the call returns.
  return runtime.wait([stream] { return stream->queue.empty(); }, stream);
}

}  // namespace
}  // namespace standin

using standin::begin_call;
using standin::end_call;
using standin::Runtime;

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const auto fault = begin_call("cudaMalloc", cudaErrorMemoryAllocation); fault != cudaSuccess)
    return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  if (memory == nullptr) return end_call(cudaErrorInvalidValue);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  *memory = runtime.arena().allocate(bytes, standin::current_device());
  if (*memory == nullptr) return end_call(cudaErrorMemoryAllocation);
  standin::register_object(*memory, "device memory");
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const auto fault = begin_call("cudaFree");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  if (memory != nullptr) {
    const auto* allocation = runtime.arena().find(memory, 1);
    standin::forget_object(memory, "device memory");
    runtime.must_be_unused(allocation->serial, "cudaFree");
    runtime.arena().release(memory);
  }
  return end_call(fault);
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int flags) {
  if (const auto fault = begin_call("cudaHostAlloc", cudaErrorMemoryAllocation); fault != cudaSuccess)
    return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  if (memory == nullptr || flags != cudaHostAllocDefault) return end_call(cudaErrorInvalidValue);
  *memory = runtime.allocate_pinned(bytes);
  if (*memory == nullptr) return end_call(cudaErrorMemoryAllocation);
  standin::register_object(*memory, "pinned memory");
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* memory) {
  const auto fault = begin_call("cudaFreeHost");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  if (memory != nullptr) {
    standin::forget_object(memory, "pinned memory");
    runtime.release_pinned(memory);
  }
  return end_call(fault);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const auto fault = begin_call("cudaMemGetInfo"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  *total_bytes = runtime.device_bytes();
  *free_bytes = runtime.device_bytes() - runtime.arena().used(standin::current_device());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const auto fault = begin_call("cudaPointerGetAttributes"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  auto* data = const_cast<void*>(pointer);
  if (const auto* device = runtime.arena().find(pointer, 1)) {
    *attributes = {cudaMemoryTypeDevice, device->device, data, nullptr};
  } else if (runtime.find_pinned(pointer, 1) != nullptr) {
    *attributes = {cudaMemoryTypeHost, standin::current_device(), data, data};
  } else {
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, data};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const auto fault = begin_call("cudaMemcpyAsync"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return end_call(standin::copy({standin::bytes_of(to), bytes}, {standin::bytes_of(from), bytes}, bytes, 1,
                                kind, stream));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto fault = begin_call("cudaMemcpy2DAsync"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return end_call(standin::copy({standin::bytes_of(to), to_pitch}, {standin::bytes_of(from), from_pitch},
                                width, height, kind, stream));
}

// Ordered with no stream but what it waits for by itself: nothing of the streams that we use, which are all
// non-blocking.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const auto fault = begin_call("cudaMemcpy"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  if (bytes == 0) return end_call(runtime.failure());
  const auto target = standin::place_of(to, bytes);
  const auto source = standin::place_of(from, bytes);
  if (target.place == standin::Place::nowhere || source.place == standin::Place::nowhere ||
      !standin::fits(kind, target.place, source.place))
    standin::violation(
        "cudaMemcpy: the direction is not that of the pointers, or an allocation is too short");
  const auto reach = [&](standin::Place place, const void* data) {
    return place == standin::Place::device ? runtime.arena().reach(data) : standin::bytes_of(data);
  };
  std::memmove(reach(target.place, to), reach(source.place, from), bytes);
  return end_call(runtime.failure());
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const auto fault = begin_call("cudaMemsetAsync"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (bytes == 0) return cudaSuccess;
  const auto* allocation = runtime.arena().find(memory, bytes);
  if (allocation == nullptr) standin::violation("cudaMemsetAsync: not memory of a device, or over its end");
  standin::Item item;
  item.uses = {allocation->serial};
  item.access = standin::Access::indifferent;
  item.run = [value, bytes, reached = runtime.arena().reach(memory)] {
    std::memset(reached, value, bytes);
    return true;
  };
  return end_call(runtime.queue(stream, std::move(item)));
}

}  // extern "C"
