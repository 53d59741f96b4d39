#pragma once
// A fixed team of threads for data-parallel loops. The caller is one of them.

#include <cstddef>
#include <functional>
#include <memory>

namespace diffuse {

// How work is cut never changes a result here: kernels give each output element to one index, and an index's
// arithmetic does not depend on which thread runs it.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // threads >= 1; 1 means: run everything in the caller
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(index, thread) for each index in [0, count), handing out indices dynamically; returns when all
  // are done. The first exception of a body is thrown again here. Not reentrant, one caller at a time.
  void parallel_for(std::size_t count, const std::function<void(std::size_t index, int thread)>& body);

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

}  // namespace diffuse
