#include "keel/kernels/exp_scale/exp_scale_cpu.h"

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {

void exp_scale(const float* base, const float* s, int64_t n, float* y, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (n >= kParallelElements)
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(base[i] * __builtin_exp(static_cast<double>(s[i])));
}

void exp_scale_backward(const float* dy, const float* y, int64_t n, float* ds, int threads) {
#pragma omp parallel for simd num_threads(threads) schedule(static) if (n >= kParallelElements)
  for (int64_t i = 0; i < n; ++i) ds[i] = static_cast<float>(ds[i] + static_cast<double>(dy[i]) * y[i]);
}

}  // namespace keel::KEEL_ISA
