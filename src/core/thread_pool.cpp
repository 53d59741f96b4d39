#include "core/thread_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace diffuse {
namespace {

// A decode step has some hundred loops a few microseconds apart: workers look for the next one this long
// before they sleep, for a wake-up costs more than such a loop.
constexpr int kSpins = 4000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct ThreadPool::Team {
  explicit Team(int count) {
    for (int thread = 1; thread < count; ++thread) workers.emplace_back([this, thread] { work(thread); });
  }
  ~Team() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
    for (auto& worker : workers) worker.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void work(int thread) {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation.load(std::memory_order_acquire) == seen; ++spin) relax();
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (closing) return;
      take(thread);
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  void take(int thread) {
    for (;;) {
      const auto index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= limit) return;
      try {
        (*body)(index, thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(limit, std::memory_order_relaxed);
      }
    }
  }

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::size_t> next{0};
  std::atomic<int> running{0};
  std::size_t limit = 0;
  const std::function<void(std::size_t, int)>* body = nullptr;
  std::exception_ptr failure;
  bool closing = false;
};

ThreadPool::ThreadPool(int threads) : team_(std::make_unique<Team>(threads < 1 ? 1 : threads)) {}
ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const {
  return static_cast<int>(team_->workers.size()) + 1;
}

void ThreadPool::parallel_for(std::size_t count, const std::function<void(std::size_t, int)>& body) {
  auto& team = *team_;
  if (team.workers.empty() || count <= 1) {
    for (std::size_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  team.body = &body;
  team.limit = count;
  team.failure = nullptr;
  team.next.store(0, std::memory_order_relaxed);
  team.running.store(static_cast<int>(team.workers.size()), std::memory_order_relaxed);
  {
    const std::lock_guard lock(team.mutex);
    team.generation.fetch_add(1, std::memory_order_release);
  }
  team.wake.notify_all();
  team.take(0);
  for (int spin = 0; team.running.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  if (team.failure) std::rethrow_exception(team.failure);
}

}  // namespace diffuse
