#include "keel/kernels/grad_norm/grad_norm_cpu.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/simd.h"

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kChains = 4;
using Floats = float __attribute__((vector_size(kLanes / 2 * sizeof(float))));
using Doubles = double __attribute__((vector_size(kLanes / 2 * sizeof(double))));
constexpr int64_t kWide = kLanes / 2;

double sum_squares(const float* g, int64_t size) {
  Doubles sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kWide <= size; i += kChains * kWide) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < kChains; ++k) {
      Floats v;
      __builtin_memcpy(&v, g + i + k * kWide, sizeof v);
      const Doubles wide = __builtin_convertvector(v, Doubles);
      sums[k] += wide * wide;
    }
  }
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double total = 0;
  for (int64_t k = 0; k < kWide; ++k) total += all[k];
  for (; i < size; ++i) total += static_cast<double>(g[i]) * g[i];
  return total;
}

void finish(double sum_squares, StepScalars& s) {
  s.grad_norm = __builtin_sqrt(sum_squares) / s.weight_sum;
  const double ratio = s.clip / (s.grad_norm + 1e-6);
  s.grad_scale = (ratio < 1 ? ratio : 1) / s.weight_sum;
  s.non_finite = __builtin_isfinite(sum_squares) && __builtin_isfinite(s.loss_sum) && s.weight_sum > 0 ? 0 : 1;
}

}  // namespace

void grad_norm(const float* g, int64_t size, StepScalars& scalars, double* partial, int threads) {
  const int64_t chunks = chunk_count(size, kGradNormChunk);
#pragma omp parallel for num_threads(threads) schedule(static) if (size >= kParallelElements)
  for (int64_t k = 0; k < chunks; ++k) {
    const int64_t begin = k * kGradNormChunk;
    partial[k] = sum_squares(g + begin, begin + kGradNormChunk < size ? kGradNormChunk : size - begin);
  }
  double total = 0;
  for (int64_t k = 0; k < chunks; ++k) total += partial[k];
  finish(total, scalars);
}

}  // namespace keel::KEEL_ISA
