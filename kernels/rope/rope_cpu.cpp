#include "keel/kernels/rope/rope_cpu.h"

#include <math.h>

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {
namespace {

/// Rotates the pairs (x1[i], x2[i]) by the angles of sign * s[i].
void rotate(float* x1, float* x2, const float* c, const float* s, float sign, int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const float first = x1[i], second = x2[i], sine = sign * s[i];
    x1[i] = first * c[i] - second * sine;
    x2[i] = second * c[i] + first * sine;
  }
}

}  // namespace

void rope_table(const double* frequencies, View<float, 2> cos, View<float, 2> sin, Threads threads) {
  const int64_t positions = cos.extent(0), pairs = cos.extent(1);
  float *cos_data = cos.data(), *sin_data = sin.data();
  const int64_t cos_stride = cos.stride(0), sin_stride = sin.stride(0);
  for_parts(threads, pairs, [&](int64_t i, int) {
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequencies[i];
      cos_data[p * cos_stride + i] = static_cast<float>(::cos(angle));
      sin_data[p * sin_stride + i] = static_cast<float>(::sin(angle));
    }
  });
}

void rope(const int32_t* positions, View<const float, 2> cos, View<const float, 2> sin, View<float, 3> x,
          RopeDirection direction, Threads threads) {
  const int64_t rows = x.extent(0), heads = x.extent(1), pairs = x.extent(2) / 2;
  const int64_t row_stride = x.stride(0), head_stride = x.stride(1);
  const int64_t cos_stride = cos.stride(0), sin_stride = sin.stride(0);
  const float *cos_data = cos.data(), *sin_data = sin.data();
  float* x_data = x.data();
  const float sign = direction == RopeDirection::forward ? 1.0F : -1.0F;
  for_ranges(threads, rows, 2 * rows * heads * pairs, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* c = cos_data + positions[n] * cos_stride;
      const float* s = sin_data + positions[n] * sin_stride;
      for (int64_t h = 0; h < heads; ++h) {
        float* head = x_data + n * row_stride + h * head_stride;
        rotate(head, head + pairs, c, s, sign, pairs);
      }
    }
  });
}

}  // namespace keel::KEEL_ISA
