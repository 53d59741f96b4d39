// Coded weights to bf16 as the products read it.

#include "kernels/simd/coded_avx512-inl.hpp"

namespace diffuse::kernels {

void expand_coded_avx512(const CodedPanel& w, std::int64_t begin, std::int64_t end, std::uint16_t* to);

void expand_coded_avx512(const CodedPanel& w, std::int64_t begin, std::int64_t end, std::uint16_t* to) {
  constexpr std::int64_t kAhead = 4096;
  Coded pairs(w, begin);
  auto* out = reinterpret_cast<std::byte*>(to);
  for (std::int64_t k = begin; k < end; k += 2) {
    __builtin_prefetch(pairs.at + kAhead, 0, 2);
    __builtin_prefetch(pairs.at + kAhead + kLine, 0, 2);
    __m512i columns[4];
    pairs.load(columns);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) _mm512_store_si512(out + v * kLine, columns[v]);
    pairs.at += kCodedPair;
    out += kBf16Pair;
  }
  copy_escaped(w, begin, end, to);
}

}  // namespace diffuse::kernels
