#include "keel/kernels/cross_entropy/cross_entropy_cpu.h"

#include <cmath>

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/vector_math.h"

namespace keel::KEEL_ISA {
namespace {

/// fp32 partial sums cover this many elements, so that their error does not grow with the vocabulary.
constexpr int64_t kSumBlock = 512;
/// Terms of the softmax below this count as 0. They change no sum; as factors of the gradient's products they would
/// meet subnormal numbers, which slow those down twentyfold.
constexpr float kNegligible = 0x1p-96F;
/// Rows whose losses wait on the stack for their turn in the sum.
constexpr int64_t kRowBlock = 256;

float largest(const float* l, int64_t V) {
  float m = -INFINITY;
#pragma omp simd reduction(max : m)
  for (int64_t v = 0; v < V; ++v) m = l[v] > m ? l[v] : m;
  return m;
}

/// The first element that is the largest; -1 if every one is NaN or the row does not count.
int32_t first_largest(const float* l, int64_t V, float weight) {
  if (weight == 0) return -1;
  const float m = largest(l, V);
  for (int64_t v = 0; v < V; ++v) {
    if (l[v] == m) return static_cast<int32_t>(v);
  }
  return -1;
}

/// sum_v exp(l[v] - m); with keep, the terms replace l.
template <bool keep>
double sum_exp(float* l, int64_t V, float m) {
  double sum = 0;
  for (int64_t begin = 0; begin < V; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < V ? begin + kSumBlock : V;
    float block = 0;
#pragma omp simd reduction(+ : block)
    for (int64_t v = begin; v < end; ++v) {
      float e = vector_exp(l[v] - m);
      e = e < kNegligible ? 0.0F : e;
      if (keep) l[v] = e;
      block += e;
    }
    sum += block;
  }
  return sum;
}

void scale(float* l, int64_t V, float factor) {
#pragma omp simd
  for (int64_t v = 0; v < V; ++v) l[v] *= factor;
}

/// The row's nll; with `gradient`, its logits become weight * (softmax - [v = target]).
double row_nll(float* l, int64_t V, int32_t target, float weight, bool gradient) {
  if (weight == 0) {
    if (gradient) {
      for (int64_t v = 0; v < V; ++v) l[v] = 0;
    }
    return 0;
  }
  const float m = largest(l, V);
  const double target_logit = l[target];
  const double sum = gradient ? sum_exp<true>(l, V, m) : sum_exp<false>(l, V, m);
  if (gradient) {
    scale(l, V, static_cast<float>(weight / sum));
    l[target] -= weight;
  }
  return log(sum) + (m - target_logit);
}

}  // namespace

void cross_entropy_rows(const CrossEntropyRows& p) {
  double loss[kRowBlock];
  for (int64_t begin = 0; begin < p.rows; begin += kRowBlock) {
    const int64_t rows = p.rows - begin < kRowBlock ? p.rows - begin : kRowBlock;
    for_parts(p.threads, rows, [&](int64_t r, int) {
      const int64_t n = begin + r;
      if (p.argmax != nullptr) p.argmax[n] = first_largest(p.logits + n * p.stride, p.V, p.weights[n]);
      const double nll = row_nll(p.logits + n * p.stride, p.V, p.targets[n], p.weights[n], p.gradient);
      if (p.nll != nullptr) p.nll[n] = static_cast<float>(nll);
      loss[r] = p.weights[n] * nll;
    });
    for (int64_t r = 0; r < rows; ++r) *p.loss_sum += loss[r];
  }
}

}  // namespace keel::KEEL_ISA
