#pragma once
// Coded weights (kernels/layout.hpp) in vectors of AVX-512, for the sources of its targets alone.

#include <immintrin.h>

#include "kernels/layout.hpp"

namespace diffuse::kernels {
namespace {

constexpr std::int64_t kLine = 64;
constexpr int kLanes = 16;

// The same of coded weights, whose parts begin at even vectors. A lane takes its exponent, in its place, from
// a table of sixteen, twice: one bit more than a number has is looked up.
struct Coded {
  const std::byte* at;   // the line with the first vector's signs and mantissas
  std::int64_t numbers;  // from there to the line of the exponents' numbers
  __m128i shift;         // of these, to the first vector's
  __m512i exponents;

  static constexpr std::int64_t kPairBytes = kCodedPair;

  Coded(const CodedPanel& panel, std::int64_t begin)
      : at(panel.panel + kCodedHeader + begin / 2 * kCodedPair),
        numbers(2 * kLine),
        shift(_mm_setzero_si128()) {
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel.panel)));
    exponents = _mm512_slli_epi16(_mm512_cvtepu8_epi16(table), 7);
  }

  template <int kVectors>
  void load(__m512i (&columns)[kVectors]) const {
    const __m512i exchanged = _mm512_set4_epi32(0x0e0f0c0d, 0x0a0b0809, 0x06070405, 0x02030001);
    const __m512i first = _mm512_srl_epi16(_mm512_loadu_si512(at + numbers), shift);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      __m512i kept = _mm512_loadu_si512(at + v / 2 * kLine);
      if (v % 2 != 0) kept = _mm512_shuffle_epi8(kept, exchanged);
      const __m512i exponent = _mm512_permutexvar_epi16(_mm512_srli_epi16(first, 4 * v), exponents);
      constexpr int kSelect = 0xca;  // the first operand's bits choose between the others
      columns[v] = _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x7f80), exponent, kept, kSelect);
    }
  }
  void part(std::int64_t first_vector) {
    at += first_vector / 2 * kLine;
    numbers -= first_vector / 2 * kLine;
    shift = _mm_cvtsi64_si128(4 * first_vector);
  }
};

}  // namespace
}  // namespace diffuse::kernels
