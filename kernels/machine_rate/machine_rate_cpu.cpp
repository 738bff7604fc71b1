#include "keel/kernels/machine_rate/machine_rate_cpu.h"

#include "keel/kernels/common/simd.h"

namespace keel::KEEL_ISA {

void triad(const float* b, const float* c, float s, float* a, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + s * c[i];
}

float read_floats(const float* a, int64_t n) {
  constexpr int64_t kChains = 8, kAhead = 3 << 10;  // hardware alone does not fetch far enough ahead
  Vec sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
#pragma GCC unroll 8
    for (int64_t c = 0; c < kChains * kLanes; c += 16) __builtin_prefetch(a + i + c + kAhead, 0, 2);
#pragma GCC unroll 8
    for (int64_t c = 0; c < kChains; ++c) sums[c] += Columns{i + c * kLanes}.load(a);
  }
  float total = 0;
  for (int64_t c = 0; c < kChains; ++c) total += sum(sums[c]);
  for (; i < n; ++i) total += a[i];
  return total;
}

double multiply_adds(int64_t rounds, float s, float t, float& sum_of_all) {
  constexpr int64_t kChains = 12;  // latency times units is 8 to 10; s and t need two of 16 registers
  const Vec factor = Vec{} + s, term = Vec{} + t;
  Vec x[kChains];
  for (int64_t i = 0; i < kChains; ++i) x[i] = Vec{} + static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int64_t i = 0; i < kChains; ++i) x[i] = x[i] * factor + term;
  }
  sum_of_all = 0;
  for (int64_t i = 0; i < kChains; ++i) sum_of_all += sum(x[i]);
  return 2.0 * static_cast<double>(kChains * kLanes) * static_cast<double>(rounds);
}

}  // namespace keel::KEEL_ISA
