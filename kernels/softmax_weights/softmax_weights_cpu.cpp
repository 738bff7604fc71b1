#include "keel/kernels/softmax_weights/softmax_weights_cpu.h"

#include "keel/kernels/common/vector_math.h"

namespace keel::KEEL_ISA {

float largest_of(const float* z, int64_t n, bool& all_finite) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t broken = 0;
  float largest = z[0];
#pragma omp simd reduction(| : broken) reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    broken |= (__builtin_bit_cast(uint32_t, z[i]) & kExponent) == kExponent ? 1U : 0U;
    largest = z[i] > largest ? z[i] : largest;
  }
  all_finite = broken == 0;
  return largest;
}

int64_t index_of(const float* z, int64_t n, float value) {
  constexpr int64_t kBlock = 256;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = begin; i < end; ++i) found |= z[i] == value ? 1U : 0U;
    if (found == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (z[i] == value) return i;
    }
  }
  return -1;
}

float weigh(const float* z, int64_t n, float largest, double inverse_temperature, float* w) {
  const double shift = largest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    w[i] = vector_exp(static_cast<float>((z[i] - shift) * inverse_temperature));
    sum += w[i];
  }
  return sum;
}

}  // namespace keel::KEEL_ISA
