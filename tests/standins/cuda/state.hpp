#pragma once
// Inside of the stand-in runtime: memory of pretend devices, streams and their queues, and the one lock over
// both.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "standin_runtime.hpp"

namespace standin {

// One cudaEventRecord: done once its stream came to it.
struct Record {
  bool done = false;
  cudaStream_t stream = nullptr;
};

// To device memory by its own addresses: work that reaches it otherwise does not care, and work of the host's
// must not have it.
enum class Access { needed, indifferent, forbidden };

struct GraphRun;

struct Item {
  std::function<bool()> run;         // false: not yet; empty for a wait and for a graph
  std::shared_ptr<Record> wait_for;  // of cudaStreamWaitEvent
  std::shared_ptr<GraphRun> graph;   // of cudaGraphLaunch
  std::vector<std::uint64_t> uses;   // serial numbers of allocations
  bool kernel = false;               // counts as "kernel" where it runs
  Access access = Access::needed;
};

// One launch of an executable graph: an item like others to its stream.
struct GraphRun {
  cudaGraphExec_t executable = nullptr;
  std::shared_ptr<const std::vector<Item>> items;  // one after the other, as they were captured
  std::size_t next = 0;
  std::shared_ptr<Record> record;  // done when all have run
};

// Of each stream, how many of its captured items come before what follows.
using Seen = std::map<cudaStream_t, std::size_t>;

// From a cudaStreamBeginCapture to its end: what was queued on its streams instead of being run.
struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool valid = true;
  bool ended = false;
  std::vector<Item> items;  // in the order of the calls
  std::map<cudaStream_t, Seen> streams;
};

struct Allocation {
  std::uint64_t serial = 0;
  std::size_t bytes = 0;
  std::size_t reserved = 0;  // with the zone behind it
  int device = -1;           // -1: pinned host memory
};

// Memory of all pretend devices: one range of addresses, inaccessible but while queued work runs, and a
// second one through which this library reaches the same memory at any time. Between allocations lie zones
// whose content is checked.
class Arena {
 public:
  Arena();
  // Null where the device has not as much left.
  void* allocate(std::size_t bytes, int device);
  void release(const void* memory);
  std::size_t used(int device) const;
  // The address in the second range.
  std::byte* reach(const void* data) const;
  // The allocation that holds [data, data + bytes), or null.
  const Allocation* find(const void* data, std::size_t bytes) const;
  bool alive(std::uint64_t serial) const { return serials_.contains(serial); }
  // Access while the count of open() is above that of close(). Work that runs in a row shares one opening,
  // until end_work().
  void open();
  void close();
  void begin_work();
  void end_work();

 private:
  std::byte* base_ = nullptr;
  std::byte* second_ = nullptr;
  std::size_t size_ = 0;
  std::size_t high_ = 0;  // bytes from base_ that were ever handed out
  bool protect_ = true;
  int open_ = 0;
  bool at_work_ = false;
  std::map<const std::byte*, Allocation> live_;
  std::set<std::uint64_t> serials_;
  std::multimap<std::size_t, std::byte*> free_;  // by size
};

// What the process sees: devices, memory and streams. Every member is used under mutex().
class Runtime {
 public:
  static Runtime& get();
  std::recursive_mutex& mutex() { return mutex_; }

  // Physical numbers of the devices that CUDA_VISIBLE_DEVICES leaves.
  const std::vector<int>& devices() const { return devices_; }
  bool has_driver() const { return has_driver_; }
  std::size_t device_bytes() const { return device_bytes_; }
  Arena& arena() { return arena_; }

  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(const void* memory);
  const Allocation* find_pinned(const void* data, std::size_t bytes) const;
  // False where an allocation, of either kind, was freed.
  bool alive(std::uint64_t serial) const;
  // Ends the process where queued work uses the allocation.
  void must_be_unused(std::uint64_t serial, const char* call) const;

  cudaStream_t create_stream(int device);
  bool is_stream(cudaStream_t stream) const;
  void destroy_stream(cudaStream_t stream);

  // Queues it, or records it where the stream captures.
  cudaError_t queue(cudaStream_t stream, Item item);
  // Runs the stream's next item, or what that waits for. False where nothing could move.
  bool step(cudaStream_t stream);
  // Moves the stream until `done` says so; lets other threads in while nothing can move.
  cudaError_t wait(const std::function<bool()>& done, cudaStream_t stream);
  cudaError_t wait_for_device(int device);
  // Marks the stream's capture, if there is one, as failed, and gives the error back.
  cudaError_t spoil(cudaStream_t stream, cudaError_t error) const;
  // For calls that may not be made beside a capture: fails, and spoils the captures that forbid them.
  cudaError_t forbid_while_capturing() const;
  bool is_queued(cudaGraphExec_t executable) const;
  // One step of a stream, of random streams, or so many of each stream.
  void move(cudaStream_t stream);
  void move_some(int steps);
  void move_all(int steps);
  std::uint64_t next_serial() { return next_serial_++; }

  // The first failure of queued work; every later call of the runtime returns it, as a real context does.
  cudaError_t failure() const { return failure_; }
  void reset();

 private:
  Runtime();
  bool run(const Item& item);
  bool run_graph(GraphRun& graph);
  bool step_one(cudaStream_t stream);

  enum class Order { lazy, eager, random };
  std::recursive_mutex mutex_;
  std::vector<int> devices_;
  bool has_driver_ = true;
  std::size_t device_bytes_ = std::size_t{4} << 30;
  Arena arena_;
  std::map<const std::byte*, Allocation> pinned_;
  std::vector<cudaStream_t> streams_;
  std::uint64_t next_serial_ = 1;
  cudaError_t failure_ = cudaSuccess;
  Order order_ = Order::lazy;
  std::mt19937 random_;
};

// Begins a call of the runtime's interface: counts it, and gives the error that it is to return at once.
cudaError_t begin_call(const char* function, cudaError_t fault = cudaErrorUnknown);
// Keeps the error for cudaGetLastError and returns it.
cudaError_t end_call(cudaError_t error);

}  // namespace standin

struct CUstream_st {
  int device = 0;
  std::deque<standin::Item> queue;
  bool running = false;
  std::shared_ptr<standin::Capture> capture;  // null: what is queued runs
};

struct CUevent_st {
  int device = 0;
  std::shared_ptr<standin::Record> last;
  // Where the last record was captured: by whom, and behind what.
  std::shared_ptr<standin::Capture> capture;
  standin::Seen seen;
};

struct CUgraph_st {
  int device = 0;
  std::vector<standin::Item> items;
};

struct CUgraphExec_st {
  int device = 0;
  std::shared_ptr<const std::vector<standin::Item>> items;
  std::vector<std::uint64_t> uses;
  std::shared_ptr<standin::Record> last;  // of its last launch
};
