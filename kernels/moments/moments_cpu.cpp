#include "keel/kernels/moments/moments_cpu.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/moments/moments.h"

namespace keel::KEEL_ISA {
namespace {

struct Sums {
  double xx, xy, yy;
};

/// Adds n elements. Without kBoth y is not read.
template <bool kBoth>
void add(const float* x, const float* y, int64_t n, Sums& sums) {
  double xx = 0, xy = 0, yy = 0;
#pragma omp simd reduction(+ : xx, xy, yy)
  for (int64_t i = 0; i < n; ++i) {
    const double x_at = x[i];
    xx += x_at * x_at;
    if constexpr (kBoth) {
      const double y_at = y[i];
      xy += x_at * y_at;
      yy += y_at * y_at;
    }
  }
  sums.xx += xx;
  sums.xy += xy;
  sums.yy += yy;
}

/// Sums over the elements [begin, end) of the rows laid one after the other.
template <bool kBoth>
Sums sum_chunk(const View<const float, 2>& x, const View<const float, 2>& y, int64_t begin, int64_t end) {
  const int64_t d = x.extent(1);
  Sums sums{};
  while (begin < end) {
    const int64_t r = begin / d, c = begin % d, n = d - c < end - begin ? d - c : end - begin;
    add<kBoth>(x.data() + r * x.stride(0) + c, kBoth ? y.data() + r * y.stride(0) + c : nullptr, n, sums);
    begin += n;
  }
  return sums;
}

}  // namespace

void moments(View<const float, 2> x, View<const float, 2> y, double* sums, double* partial, Threads threads) {
  const int64_t size = x.extent(0) * x.extent(1), chunks = chunk_count(size, kMomentsChunk);
  const bool both = y.data() != nullptr;
  for_parts(threads, chunks, [&](int64_t k, int) {
    const int64_t begin = k * kMomentsChunk, end = begin + kMomentsChunk < size ? begin + kMomentsChunk : size;
    const Sums s = both ? sum_chunk<true>(x, y, begin, end) : sum_chunk<false>(x, y, begin, end);
    partial[3 * k] = s.xx;
    partial[3 * k + 1] = s.xy;
    partial[3 * k + 2] = s.yy;
  });
  for (int64_t i = 0; i < 3; ++i) {
    double total = 0;
    for (int64_t k = 0; k < chunks; ++k) total += partial[3 * k + i];
    sums[i] += total;
  }
}

void log_sum(const float* r, int64_t n, double& sum, double* partial, Threads threads) {
  const int64_t chunks = chunk_count(n, kLogSumChunk);
  for_parts(threads, chunks, [&](int64_t k, int) {
    const int64_t end = (k + 1) * kLogSumChunk < n ? (k + 1) * kLogSumChunk : n;
    double logs = 0;
    for (int64_t i = k * kLogSumChunk; i < end; ++i) logs += __builtin_log(__builtin_fabs(static_cast<double>(r[i])));
    partial[k] = logs;
  });
  double total = 0;
  for (int64_t k = 0; k < chunks; ++k) total += partial[k];
  sum += total;
}

}  // namespace keel::KEEL_ISA
