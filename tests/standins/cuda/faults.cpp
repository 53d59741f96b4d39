#include "standin_faults.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "standin_runtime.hpp"

namespace standin {
namespace {

struct Fault {
  std::string function;
  int call = 0;
  std::optional<int> code;
};

std::string rank_of_process() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? "" : rank;
}

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    Fault fault;
    const auto equals = item.find('=');
    if (equals != std::string::npos) fault.code = std::stoi(item.substr(equals + 1));
    item = item.substr(0, equals);
    const auto at = item.find('@');
    const bool here = at == std::string::npos || item.substr(at + 1) == rank_of_process();
    item = item.substr(0, at);
    const auto colon = item.rfind(':');
    if (colon == std::string::npos)
      throw std::invalid_argument("DIFFUSE_STANDIN_FAIL: '" + item + "' names no call, as in cudaMalloc:3");
    fault.function = item.substr(0, colon);
    fault.call = std::stoi(item.substr(colon + 1));
    if (here) faults.push_back(fault);
  }
  return faults;
}

class Faults {
 public:
  Faults() {
    if (const char* text = std::getenv("DIFFUSE_STANDIN_FAIL")) faults_ = parse_faults(text);
    if (std::getenv("DIFFUSE_STANDIN_COUNTS") != nullptr) std::atexit([] { write_counts(); });
  }

  std::optional<int> count(const std::string& function, int code) {
    const std::lock_guard lock(mutex_);
    const int call = ++counts_[function];
    ++total_;
    for (const auto& fault : faults_) {
      if (fault.function == "*" ? fault.call != total_ : fault.function != function || fault.call != call)
        continue;
      happened_ = true;
      return fault.code.value_or(code);
    }
    return {};
  }

  void set(const std::string& text) {
    auto faults = parse_faults(text);
    const std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
    counts_.clear();
    total_ = 0;
    happened_ = false;
  }

  std::map<std::string, int> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  bool happened() {
    const std::lock_guard lock(mutex_);
    return happened_;
  }

  static void write_counts();

 private:
  std::mutex mutex_;
  std::vector<Fault> faults_;
  std::map<std::string, int> counts_;
  int total_ = 0;
  bool happened_ = false;
};

// Never destroyed: libraries are called until the very end of a process.
Faults& faults() {
  static auto* instance = new Faults;
  return *instance;
}

void Faults::write_counts() {
  std::string path = std::getenv("DIFFUSE_STANDIN_COUNTS");
  if (!rank_of_process().empty()) path += "." + rank_of_process();
  std::ofstream file(path);
  for (const auto& [name, count] : faults().counts()) file << name << ' ' << count << '\n';
}

}  // namespace

std::optional<int> injected(const char* function, int code) {
  if (inside_queued_work()) violation(std::string(function) + " was called by work that runs on a stream");
  return faults().count(function, code);
}

void inject(const std::string& text) {
  faults().set(text);
}

std::map<std::string, int> call_counts() {
  return faults().counts();
}

bool fault_happened() {
  return faults().happened();
}

void violation(const std::string& what) {
  std::fprintf(stderr, "stand-in: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace standin
