#include "backend/cpu/memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.hpp"

namespace diffuse::cpu {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 64;

std::size_t round_up_to(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

Buffer allocate_zeroed(std::size_t bytes) {
  if (bytes == 0) return {};
  if (bytes > SIZE_MAX / 2) throw_internal("a buffer's size overflows");
  if (bytes < 2 * kLargePage) {
    auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, round_up_to(bytes, kAlignment)));
    if (data == nullptr) throw_io("out of memory: " + std::to_string(bytes) + " bytes asked for");
    std::memset(data, 0, bytes);
    return {std::shared_ptr<std::byte>(data, [](std::byte* memory) { std::free(memory); }), bytes};
  }
  const std::size_t mapped = round_up_to(bytes, kLargePage) + kLargePage;
  void* base =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw_errno("mapping " + std::to_string(bytes) + " bytes of memory");
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  auto* data = static_cast<std::byte*>(base) + (round_up_to(address, kLargePage) - address);
  madvise(data, round_up_to(bytes, kLargePage), MADV_HUGEPAGE);  // advice: a refusal costs only speed
  return {std::shared_ptr<std::byte>(data, [base, mapped](std::byte*) { munmap(base, mapped); }), bytes};
}

std::byte* Scratch::reserve(std::size_t bytes) {
  if (bytes > memory_.bytes()) memory_ = allocate_zeroed(bytes + bytes / 2);
  return memory_.data();
}

}  // namespace diffuse::cpu
