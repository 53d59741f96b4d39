// Streams and events: queues of work that runs when something waits for it.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <thread>

#include "capture.hpp"
#include "standin_faults.hpp"
#include "state.hpp"

namespace standin {
namespace {

thread_local bool inside = false;
constexpr auto kPause = std::chrono::microseconds(20);

}  // namespace

bool inside_queued_work() {
  return inside;
}

void Runtime::must_be_unused(std::uint64_t serial, const char* call) const {
  if (failure_ != cudaSuccess) return;  // nothing will run
  for (const auto* stream : streams_) {
    for (const auto& item : stream->queue) {
      if (std::find(item.uses.begin(), item.uses.end(), serial) != item.uses.end())
        violation(std::string(call) + ": work that is still queued uses the memory");
    }
  }
}

cudaStream_t Runtime::create_stream(int device) {
  auto* stream = new CUstream_st;
  stream->device = device;
  streams_.push_back(stream);
  return stream;
}

bool Runtime::is_stream(cudaStream_t stream) const {
  return std::find(streams_.begin(), streams_.end(), stream) != streams_.end();
}

void Runtime::destroy_stream(cudaStream_t stream) {
  if (stream->capture) violation("cudaStreamDestroy: the stream captures");
  wait([stream] { return stream->queue.empty(); }, stream);
  streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
  delete stream;
}

cudaError_t Runtime::queue(cudaStream_t stream, Item item) {
  if (failure_ != cudaSuccess) return failure_;
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  if (auto* capture = stream->capture.get()) {
    if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
    capture->items.push_back(std::move(item));
    ++capture->streams[stream][stream];
    return cudaSuccess;
  }
  stream->queue.push_back(std::move(item));
  if (order_ == Order::eager) {
    while (step(stream)) {
    }
  }
  if (order_ == Order::random) move_some(static_cast<int>(random_() % 3));
  arena_.end_work();
  return cudaSuccess;
}

// True where it has run.
bool Runtime::run(const Item& item) {
  if (item.kernel) {
    if (const auto code = injected("kernel", cudaErrorIllegalAddress)) {
      failure_ = static_cast<cudaError_t>(*code);
      return true;
    }
  }
  if (item.access == Access::forbidden) arena_.end_work();
  if (item.access == Access::needed) arena_.begin_work();
  inside = true;
  bool ran = true;
  try {
    ran = item.run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "stand-in: a kernel failed: %s\n", problem.what());
    failure_ = cudaErrorLaunchFailure;
  }
  inside = false;
  return ran;
}

bool Runtime::run_graph(GraphRun& graph) {
  while (graph.next < graph.items->size()) {
    if (!run((*graph.items)[graph.next])) return false;
    if (failure_ != cudaSuccess) return true;
    ++graph.next;
  }
  graph.record->done = true;
  return true;
}

bool Runtime::step_one(cudaStream_t stream) {
  auto& item = stream->queue.front();
  if (item.wait_for && !item.wait_for->done)
    return is_stream(item.wait_for->stream) && step(item.wait_for->stream);
  if (item.graph && !run_graph(*item.graph)) return false;
  if (item.run && !run(item)) return false;
  stream->queue.pop_front();
  return true;
}

bool Runtime::step(cudaStream_t stream) {
  if (stream->running || stream->queue.empty()) return false;
  stream->running = true;
  const bool moved = step_one(stream);
  stream->running = false;
  if (failure_ != cudaSuccess) {
    // Nothing runs on a device that failed.
    for (auto* each : streams_) {
      if (!each->running) each->queue.clear();
    }
  }
  return moved;
}

cudaError_t Runtime::wait(const std::function<bool()>& done, cudaStream_t stream) {
  while (failure_ == cudaSuccess && !done()) {
    if (step(stream)) continue;
    // Another thread may have to queue what this one waits for, or a peer to answer.
    arena_.end_work();
    mutex_.unlock();
    std::this_thread::sleep_for(kPause);
    mutex_.lock();
  }
  arena_.end_work();
  return failure_;
}

cudaError_t Runtime::wait_for_device(int device) {
  const auto streams = streams_;
  for (auto* stream : streams) {
    if (is_stream(stream) && stream->device == device)
      wait([stream] { return stream->queue.empty(); }, stream);
  }
  return failure_;
}

void Runtime::reset() {
  for (auto* stream : streams_) stream->queue.clear();
  failure_ = cudaSuccess;
}

void Runtime::move(cudaStream_t stream) {
  step(stream);
  arena_.end_work();
}

void Runtime::move_some(int steps) {
  if (streams_.empty()) return;
  for (int i = 0; i < steps; ++i) step(streams_[random_() % streams_.size()]);
  arena_.end_work();
}

void Runtime::move_all(int steps) {
  for (int i = 0; i < steps; ++i) {
    for (auto* stream : streams_) step(stream);
  }
  arena_.end_work();
}

void progress(int steps) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  runtime.move_all(steps);
}

void drive(cudaStream_t stream) {
  auto& runtime = Runtime::get();
  for (bool moved = true; moved;) {
    // Step by step: a thread that calls the runtime meanwhile gets in.
    const std::lock_guard lock(runtime.mutex());
    moved = runtime.is_stream(stream) && runtime.step(stream);
    runtime.arena().end_work();
  }
}

void reset_device() {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  runtime.reset();
  static_cast<void>(cudaGetLastError());
}

int device_of_stream(cudaStream_t stream) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  return runtime.is_stream(stream) ? stream->device : -1;
}

namespace {

// A range must lie in memory of the stream's device; gives the allocation's serial number.
std::uint64_t checked_range(const Range& range, cudaStream_t stream) {
  const auto* allocation = Runtime::get().arena().find(range.data, range.bytes);
  if (allocation == nullptr)
    violation("a kernel or library call was given memory that is not on a device, or goes over its end");
  if (allocation->device != stream->device)
    violation("a kernel or library call was given memory of another device than its stream's");
  return allocation->serial;
}

cudaError_t enqueue_item(cudaStream_t stream, std::function<bool()> work, const Range* ranges,
                         std::size_t count, bool kernel, Access access = Access::needed) {
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!runtime.is_stream(stream) || stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  Item item;
  item.kernel = kernel;
  item.access = access;
  item.run = std::move(work);
  for (const auto* range = ranges; range != ranges + count; ++range) {
    if (range->data != nullptr && range->bytes > 0) item.uses.push_back(checked_range(*range, stream));
  }
  return runtime.queue(stream, std::move(item));
}

cudaError_t queue_kernel(cudaStream_t stream, std::function<void()> work, std::span<const Range> ranges) {
  if (const auto fault = begin_call("cudaLaunchKernel"); fault != cudaSuccess) return end_call(fault);
  return end_call(enqueue_item(
      stream,
      [run = std::move(work)] {
        run();
        return true;
      },
      ranges.data(), ranges.size(), true));
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, std::initializer_list<Range> ranges) {
  return queue_kernel(stream, std::move(work), {ranges.begin(), ranges.size()});
}

cudaError_t enqueue_kernel(cudaStream_t stream, std::function<void()> work, const void* arguments,
                           std::size_t bytes) {
  std::vector<Range> ranges;
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    Range range;
    std::memcpy(&range.data, static_cast<const std::byte*>(arguments) + at, sizeof range.data);
    if (is_device_memory(range.data, range.bytes)) ranges.push_back(range);
  }
  return queue_kernel(stream, std::move(work), ranges);
}

cudaError_t enqueue_library(cudaStream_t stream, std::function<void()> work,
                            const std::vector<Range>& ranges) {
  return enqueue_item(
      stream,
      [run = std::move(work)] {
        run();
        return true;
      },
      ranges.data(), ranges.size(), false, Access::indifferent);
}

cudaError_t enqueue_polled(cudaStream_t stream, std::function<bool()> work,
                           const std::vector<Range>& ranges) {
  return enqueue_item(stream, std::move(work), ranges.data(), ranges.size(), false);
}

}  // namespace standin

using standin::begin_call;
using standin::end_call;
using standin::Runtime;

cudaError_t standin_enqueue(cudaStream_t stream, std::function<void()> work) {
  return standin::enqueue(stream, std::move(work), {});
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (const auto fault = begin_call("cudaStreamCreateWithFlags"); fault != cudaSuccess)
    return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  // Streams that wait for the default stream are not modelled.
  if (flags != cudaStreamNonBlocking) return end_call(cudaErrorNotSupported);
  *stream = runtime.create_stream(standin::current_device());
  standin::register_object(*stream, "stream");
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto fault = begin_call("cudaStreamDestroy");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  standin::forget_object(stream, "stream");
  runtime.destroy_stream(stream);
  return end_call(fault);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto fault = begin_call("cudaStreamSynchronize");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!runtime.is_stream(stream)) return end_call(cudaErrorInvalidResourceHandle);
  if (stream->capture) return end_call(runtime.spoil(stream, cudaErrorStreamCaptureUnsupported));
  const auto waited = runtime.wait([stream] { return stream->queue.empty(); }, stream);
  return end_call(fault != cudaSuccess ? fault : waited);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const auto fault = begin_call("cudaStreamQuery"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!runtime.is_stream(stream)) return end_call(cudaErrorInvalidResourceHandle);
  if (runtime.failure() != cudaSuccess) return end_call(runtime.failure());
  if (stream->capture) return end_call(runtime.spoil(stream, cudaErrorStreamCaptureUnsupported));
  runtime.move(stream);
  if (runtime.failure() != cudaSuccess) return end_call(runtime.failure());
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (const auto fault = begin_call("cudaStreamWaitEvent"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!standin::is_registered(event, "event")) return end_call(cudaErrorInvalidResourceHandle);
  if (flags != 0) return end_call(cudaErrorInvalidValue);
  if (!runtime.is_stream(stream)) return end_call(cudaErrorInvalidResourceHandle);
  if (event->capture) return end_call(standin::wait_for_captured(stream, *event));
  if (!event->last) return cudaSuccess;
  // The graph would depend on work that is not a part of it.
  if (stream->capture) return end_call(runtime.spoil(stream, cudaErrorStreamCaptureIsolation));
  standin::Item item;
  item.wait_for = event->last;
  return end_call(runtime.queue(stream, std::move(item)));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const auto fault = begin_call("cudaLaunchHostFunc"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  standin::Item item;
  item.access = standin::Access::forbidden;
  item.run = [=] {
    function(data);
    return true;
  };
  return end_call(runtime.queue(stream, std::move(item)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (const auto fault = begin_call("cudaEventCreateWithFlags"); fault != cudaSuccess) return end_call(fault);
  if ((flags & ~static_cast<unsigned>(cudaEventDisableTiming | cudaEventBlockingSync)) != 0)
    return end_call(cudaErrorInvalidValue);
  *event = new CUevent_st;
  (*event)->device = standin::current_device();
  standin::register_object(*event, "event");
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto fault = begin_call("cudaEventDestroy");
  standin::forget_object(event, "event");
  delete event;
  return end_call(fault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const auto fault = begin_call("cudaEventRecord"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!standin::is_registered(event, "event") || !runtime.is_stream(stream) ||
      event->device != stream->device)
    return end_call(cudaErrorInvalidResourceHandle);
  event->capture = stream->capture;
  event->seen.clear();
  event->last.reset();
  if (stream->capture) {
    if (!stream->capture->valid) return end_call(cudaErrorStreamCaptureInvalidated);
    event->seen = stream->capture->streams[stream];
    return cudaSuccess;
  }
  auto record = std::make_shared<standin::Record>();
  record->stream = stream;
  event->last = record;
  standin::Item item;
  item.access = standin::Access::indifferent;
  item.run = [record] {
    record->done = true;
    return true;
  };
  return end_call(runtime.queue(stream, std::move(item)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto fault = begin_call("cudaEventSynchronize");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!standin::is_registered(event, "event")) return end_call(cudaErrorInvalidResourceHandle);
  if (const auto error = standin::forbid_wait(*event); error != cudaSuccess) return end_call(error);
  const auto record = event->last;
  if (!record || record->done) return end_call(fault != cudaSuccess ? fault : runtime.failure());
  const auto waited = runtime.wait([record] { return record->done; }, record->stream);
  return end_call(fault != cudaSuccess ? fault : waited);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const auto fault = begin_call("cudaEventQuery"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!standin::is_registered(event, "event")) return end_call(cudaErrorInvalidResourceHandle);
  if (const auto error = standin::forbid_wait(*event); error != cudaSuccess) return end_call(error);
  const auto record = event->last;
  if (record && !record->done && runtime.failure() == cudaSuccess) runtime.move(record->stream);
  if (runtime.failure() != cudaSuccess) return end_call(runtime.failure());
  return !record || record->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void) {
  const auto fault = begin_call("cudaDeviceSynchronize");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (const auto error = runtime.forbid_while_capturing(); error != cudaSuccess) return end_call(error);
  const auto waited = runtime.wait_for_device(standin::current_device());
  return end_call(fault != cudaSuccess ? fault : waited);
}

}  // extern "C"
