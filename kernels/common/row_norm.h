#pragma once

#include "keel/kernels/common/simd.h"

/// What rms_norm and seam share. Internal to kernels/*/*_cpu.cpp.
namespace keel::KEEL_ISA {
namespace {

/// (sum_squares / d + eps)^(-1/2).
[[gnu::always_inline]] inline float inverse_rms(float sum_squares, int64_t d, float eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(sum_squares) / static_cast<double>(d) + eps));
}

/// Columns that one thread adds up at a time.
constexpr int64_t kPartialBlock = 64;

/// total[c] += sum over k < chunks, in order and in double, of partial[k * stride + c],  for begin <= c < end,
/// end - begin <= kPartialBlock.
inline void add_partial_sums(const float* partial, int64_t chunks, int64_t stride, int64_t begin, int64_t end,
                             float* total) {
  double sums[kPartialBlock] = {};
  for (int64_t k = 0; k < chunks; ++k) {
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) sums[c - begin] += partial[k * stride + c];
  }
  for (int64_t c = begin; c < end; ++c) total[c] += static_cast<float>(sums[c - begin]);
}

}  // namespace
}  // namespace keel::KEEL_ISA
