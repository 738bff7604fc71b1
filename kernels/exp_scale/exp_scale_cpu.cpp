#include "keel/kernels/exp_scale/exp_scale_cpu.h"

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {

void exp_scale(const float* base, const float* s, int64_t n, float* y, Threads threads) {
  for_ranges(threads, n, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(base[i] * __builtin_exp(static_cast<double>(s[i])));
  });
}

void exp_scale_backward(const float* dy, const float* y, int64_t n, float* ds, Threads threads) {
  for_ranges(threads, n, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ds[i] = static_cast<float>(ds[i] + static_cast<double>(dy[i]) * y[i]);
  });
}

}  // namespace keel::KEEL_ISA
