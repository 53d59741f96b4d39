// What is alive, and what is left over at the end of the process.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace standin {
namespace {

constexpr int kLeakExitCode = 99;

class Objects {
 public:
  Objects() {
    std::atexit([] { report_leaks(); });
  }

  void add(const void* object, const std::string& kind) {
    const std::lock_guard lock(mutex_);
    alive_[object] = kind;
  }
  bool remove(const void* object, const std::string& kind) {
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(object);
    if (found == alive_.end() || found->second != kind) return false;
    alive_.erase(found);
    return true;
  }
  bool has(const void* object, const std::string& kind) {
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(object);
    return found != alive_.end() && found->second == kind;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return alive_.size();
  }

 private:
  static void report_leaks();
  std::mutex mutex_;
  std::map<const void*, std::string> alive_;
};

Objects& objects() {
  static auto* instance = new Objects;
  return *instance;
}

void Objects::report_leaks() {
  std::map<std::string, int> kinds;
  for (const auto& [object, kind] : objects().alive_) ++kinds[kind];
  if (kinds.empty()) return;
  for (const auto& [kind, count] : kinds)
    std::fprintf(stderr, "stand-in: %d leaked at the end of the process: %s\n", count, kind.c_str());
  std::fflush(stderr);
  std::fflush(stdout);
  _exit(kLeakExitCode);
}

}  // namespace

void register_object(const void* object, const char* kind) {
  objects().add(object, kind);
}

void forget_object(const void* object, const char* kind) {
  if (!objects().remove(object, kind)) violation(std::string("released, but not alive: ") + kind);
}

bool is_registered(const void* object, const char* kind) {
  return objects().has(object, kind);
}

std::size_t live_objects() {
  return objects().count();
}

}  // namespace standin
