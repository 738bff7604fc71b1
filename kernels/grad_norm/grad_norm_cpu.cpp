#include "keel/kernels/grad_norm/grad_norm_cpu.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {
namespace {

/// Four parts side by side: one chain of additions alone would wait for itself.
double sum_squares(const float* g, int64_t size) {
  const int64_t part = size / 4;
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < part; ++i) {
    const double g0 = g[i], g1 = g[part + i], g2 = g[2 * part + i], g3 = g[3 * part + i];
    s0 += g0 * g0;
    s1 += g1 * g1;
    s2 += g2 * g2;
    s3 += g3 * g3;
  }
  for (int64_t i = 4 * part; i < size; ++i) s0 += static_cast<double>(g[i]) * g[i];
  return (s0 + s1) + (s2 + s3);
}

void finish(double sum_squares, StepScalars& s) {
  s.grad_norm = __builtin_sqrt(sum_squares) / s.weight_sum;
  const double ratio = s.clip / (s.grad_norm + 1e-6);
  s.grad_scale = (ratio < 1 ? ratio : 1) / s.weight_sum;
  s.non_finite = __builtin_isfinite(sum_squares) && __builtin_isfinite(s.loss_sum) && s.weight_sum > 0 ? 0 : 1;
}

}  // namespace

void grad_norm(const float* g, int64_t size, StepScalars& scalars, double* partial, Threads threads) {
  const int64_t chunks = chunk_count(size, kGradNormChunk);
  for_ranges(threads, chunks, size, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t begin = k * kGradNormChunk;
      partial[k] = sum_squares(g + begin, begin + kGradNormChunk < size ? kGradNormChunk : size - begin);
    }
  });
  double total = 0;
  for (int64_t k = 0; k < chunks; ++k) total += partial[k];
  finish(total, scalars);
}

}  // namespace keel::KEEL_ISA
