#include "kernels/targets.hpp"

#if DIFFUSE_X86
#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>
#endif

namespace diffuse::kernels {

const KernelTable& table_baseline();
#if DIFFUSE_X86
const KernelTable& table_avx2();
const KernelTable& table_avx512();
void expand_coded_avx512(const CodedPanel& w, std::int64_t begin, std::int64_t end, std::uint16_t* to);
void matmul_avx512_bf16(const PanelProduct& args);
void matmul_coded_avx512_bf16(const PanelProduct& args, const CodedPanel& panel, std::int64_t begin);
void matmul_amx(const PanelProduct& args);
#endif

namespace {

#if DIFFUSE_X86
bool has_avx512_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1U) != 0;
}

// Linux gives a process the tile registers only when it asks.
bool has_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool tiles = (edx >> 24 & 1U) != 0;
  const bool products = (edx >> 22 & 1U) != 0;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return tiles && products && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<SimdTarget> find_targets() {
  std::vector<SimdTarget> targets{SimdTarget::baseline};
#if DIFFUSE_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("x86-64-v3")) return targets;
  targets.push_back(SimdTarget::avx2);
  if (!__builtin_cpu_supports("x86-64-v4")) return targets;
  targets.push_back(SimdTarget::avx512);
  if (has_avx512_bf16()) targets.push_back(SimdTarget::avx512_bf16);
  if (has_amx()) targets.push_back(SimdTarget::amx);
#endif
  return targets;
}

#if DIFFUSE_X86
KernelTable with_native(const char* name, void (*product)(const PanelProduct&), std::int64_t rows) {
  KernelTable table = table_avx512();
  table.name = name;
  table.native_bf16 = true;
  table.matmul_native = product;
  table.native_pass_rows = rows;
  return table;
}

KernelTable avx512_bf16_table() {
  KernelTable table = with_native("avx512_bf16", matmul_avx512_bf16, 6);
  table.matmul_coded = matmul_coded_avx512_bf16;
  table.expand_coded = expand_coded_avx512;
  table.coded_rows = 12;
  return table;
}
#endif

}  // namespace

const std::vector<SimdTarget>& available_targets() {
  static const std::vector<SimdTarget> targets = find_targets();
  return targets;
}

std::string_view name_of(SimdTarget target) {
  switch (target) {
    case SimdTarget::baseline:
      return "baseline";
    case SimdTarget::avx2:
      return "avx2";
    case SimdTarget::avx512:
      return "avx512";
    case SimdTarget::avx512_bf16:
      return "avx512_bf16";
    case SimdTarget::amx:
      return "amx";
  }
  return "?";
}

const KernelTable& kernels_for(SimdTarget target) {
#if DIFFUSE_X86
  static const KernelTable avx512_bf16 = avx512_bf16_table();
  static const KernelTable amx = with_native("amx", matmul_amx, 16);
  switch (target) {
    case SimdTarget::baseline:
      return table_baseline();
    case SimdTarget::avx2:
      return table_avx2();
    case SimdTarget::avx512:
      return table_avx512();
    case SimdTarget::avx512_bf16:
      return avx512_bf16;
    case SimdTarget::amx:
      return amx;
  }
#endif
  (void)target;
  return table_baseline();
}

}  // namespace diffuse::kernels
