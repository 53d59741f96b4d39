#pragma once
// What the stand-in of the CUDA runtime offers to the stand-ins that queue work on its streams: kernel
// launches, cuBLASLt, NCCL.
//
// Work runs when something waits for it: a synchronisation runs what it must wait for, in stream order and
// behind the events that the stream waits for, and nothing else; a query moves its stream by one step.
// DIFFUSE_STANDIN_ORDER says what else may happen, all within what streams and events promise:
//   lazy         nothing (the default)
//   eager        work runs as soon as it can when it is queued
//   random:SEED  at each call some streams move by some steps
//
// With DIFFUSE_STANDIN_PROTECT=1 device memory faults when it is touched, but by queued work while it runs:
// what the host may not do on a real device either. It costs time on virtual machines, so some of the tests
// set it. A stand-in of a library that moves data by other means (MPI) goes through reach(), or through
// memory of its own and copies inside the queued closure.
//
// A stream that captures runs nothing: what is queued on it becomes part of a graph, and each launch of that
// is one piece of work of its stream. What NVIDIA forbids meanwhile gives NVIDIA's errors and spoils the
// capture; of calls that are unsafe beside one, those that take or free memory or wait are known here.
// Launching a graph whose memory was freed, and destroying one whose launch is still queued, end the process.
//
// DIFFUSE_STANDIN_DEVICES  number of devices (1); CUDA_VISIBLE_DEVICES chooses among them
// DIFFUSE_STANDIN_MEMORY   bytes of each device (4 GiB)
// DIFFUSE_STANDIN_NAME     name of each device ("Stand-in")
// DIFFUSE_STANDIN_DRIVER   "none": no driver, as on a machine without a GPU

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <vector>

// Queues a kernel. It runs whole, and an exception that leaves it is a failed launch, seen by the next
// synchronisation. Counts as "cudaLaunchKernel" where it is queued, and as "kernel" where it runs: a fault
// injected there shows later, as a real kernel's does.
cudaError_t standin_enqueue(cudaStream_t stream, std::function<void()> work);

namespace standin {

// A range that queued work reads or writes: it must lie whole in memory of the stream's device, now and until
// the work has run. Null is skipped.
struct Range {
  const void* data = nullptr;
  std::size_t bytes = 1;
};
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, std::initializer_list<Range> ranges);

// The same for a kernel whose arguments are given as bytes: what points into device memory there is a range
// of its own.
cudaError_t enqueue_kernel(cudaStream_t stream, std::function<void()> work, const void* arguments,
                           std::size_t bytes);

// Queues work that may not be able to complete yet: asked again and again, while something waits for it,
// until it returns true. It must not block, and must give up (return true) once its library says so. Not
// counted as a call.
cudaError_t enqueue_polled(cudaStream_t stream, std::function<bool()> work, const std::vector<Range>& ranges);

// Queues a library's work, which goes through reach() to device memory. Not counted as a call.
cudaError_t enqueue_library(cudaStream_t stream, std::function<void()> work,
                            const std::vector<Range>& ranges);

// Device memory at an address where it can be touched at any time: for stand-ins of libraries, never for what
// is tested.
void* reach(const void* device_memory);

// True where the range lies whole in a live allocation of this kind.
bool is_device_memory(const void* data, std::size_t bytes);
bool is_pinned_memory(const void* data, std::size_t bytes);
// The device of a stream or of device memory, numbered as the process sees them; -1: none.
int device_of_stream(cudaStream_t stream);
int device_of_memory(const void* data);
// The current device of this thread.
int current_device();
// The number of a device before CUDA_VISIBLE_DEVICES chose: equal on two ranks of a host where they share it.
int physical_device(int device);

// Lets every stream move by up to `steps` steps, as a device does on its own.
void progress(int steps);
// Lets one stream move as far as it can, for a library that has a thread of its own; nothing where it is
// gone.
void drive(cudaStream_t stream);

// Forgets a failure of queued work, which else every later call reports, and this thread's last error: what a
// new process would do.
void reset_device();

// Lets this thread read and write device memory while it lives, as queued work does while it runs.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Objects that are alive: streams, events, allocations and what other stand-ins register by name. At the end
// of a process those that are left over are named and the process fails.
void register_object(const void* object, const char* kind);
void forget_object(const void* object, const char* kind);  // a violation where it is not alive
bool is_registered(const void* object, const char* kind);
std::size_t live_objects();

// True on a thread that runs queued work: it must not call the runtime.
bool inside_queued_work();

}  // namespace standin
