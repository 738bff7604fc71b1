#include "keel/kernels/adamw/adamw_cpu.h"

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {
namespace {

AdamwCoefficients coefficients(const AdamwSegment& segment, double beta1, double beta2, const StepScalars& s) {
  const double lr = s.learning_rate[static_cast<int>(segment.parameter_class)];
  return {static_cast<float>(s.grad_scale),
          static_cast<float>(lr * segment.weight_decay),
          static_cast<float>(beta1),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(lr / s.bias_correction1),
          static_cast<float>(1 / s.bias_correction2),
          segment.eps};
}

void update(const AdamwCoefficients& k, const float* gradient, float* w, float* m, float* v, int64_t size) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float g = k.grad_scale * gradient[i];
    const float decayed = w[i] - k.decay * w[i];
    m[i] = k.beta1 * m[i] + k.one_minus_beta1 * g;
    v[i] = k.beta2 * v[i] + k.one_minus_beta2 * (g * g);
    w[i] = decayed - k.step * m[i] / (__builtin_sqrtf(v[i] * k.inv_correction2) + k.eps);
  }
}

/// Share t of `shares` of n elements begins here; on a cache line of the arrays where they are aligned.
int64_t share_begin(int64_t n, int64_t t, int64_t shares) {
  constexpr int64_t kLine = 16;
  return t == shares ? n : n / kLine * t / shares * kLine;
}

/// Updates elements begin .. end-1 of the segments laid end to end.
void update_share(const AdamwSegment* segments, int64_t count, int64_t begin, int64_t end, double beta1, double beta2,
                  const StepScalars& scalars, const AdamwArrays& arrays) {
  int64_t before = 0;
  for (int64_t i = 0; i < count && before < end; before += segments[i].size, ++i) {
    const int64_t from = begin > before ? begin - before : 0;
    const int64_t to = end - before < segments[i].size ? end - before : segments[i].size;
    if (from >= to) continue;
    const int64_t at = segments[i].offset + from;
    update(coefficients(segments[i], beta1, beta2, scalars), arrays.gradient + at, arrays.w + at, arrays.m + at,
           arrays.v + at, to - from);
  }
}

}  // namespace

void adamw(const AdamwSegment* segments, int64_t count, double beta1, double beta2, const StepScalars& scalars,
           const AdamwArrays& arrays, Threads threads) {
  if (scalars.non_finite != 0) return;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += segments[i].size;
  const int64_t shares = total < kParallelElements ? 1 : 4 * threads.count;
  for_parts(threads, shares, [&](int64_t t, int) {
    update_share(segments, count, share_begin(total, t, shares), share_begin(total, t + 1, shares), beta1, beta2,
                 scalars, arrays);
  });
}

}  // namespace keel::KEEL_ISA
