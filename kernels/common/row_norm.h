#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/simd.h"

/// What the norms and sums over rows share. Internal to kernels/*/*_cpu.cpp.
namespace keel::KEEL_ISA {
namespace {

/// (sum_squares / d + eps)^(-1/2).
[[gnu::always_inline]] inline float inverse_rms(float sum_squares, int64_t d, float eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(sum_squares) / static_cast<double>(d) + eps));
}

/// y = w (x - mean) r + bias of one row, y may be x.  Returns r = (mean((x - mean)^2) + eps)^(-1/2).
[[gnu::always_inline]] inline float layer_norm_row(const float* x, float mean, const float* w, const float* bias,
                                                   float eps, int64_t d, float* y) {
  const float squares = sum_columns(d, [&](auto at, Vec& s) {
    const Vec centred = at.keep(at.load(x) - mean);
    s += centred * centred;
  });
  const float r = inverse_rms(squares, d, eps);
  for_columns(d, [&](auto at) { at.store(y, r * (at.load(x) - mean) * at.load(w) + at.load(bias)); });
  return r;
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

/// body(begin, end) for blocks of the d columns over which `chunks` partial sums are added up.
template <class Body>
inline void for_column_blocks(Threads threads, int64_t chunks, int64_t d, Body body) {
  const int64_t blocks = (d + kPartialBlock - 1) / kPartialBlock;
  for_ranges(threads, blocks, chunks * d, [&](int64_t begin, int64_t last) {
    for (int64_t block = begin; block < last; ++block) {
      const int64_t end = (block + 1) * kPartialBlock;
      body(block * kPartialBlock, end < d ? end : d);
    }
  });
}

/// Adds sums over rows, in fixed chunks, to the totals, [d] each. add_row(r, sums) adds row r to sums, d numbers for each
/// total one after the other. partial: [chunk_count(rows), kTotals * d].
template <int64_t kTotals, class AddRow>
inline void sum_rows(int64_t rows, int64_t d, View<float, 2> partial, float* const (&totals)[kTotals], RowSums sums,
                     Threads threads, AddRow add_row) {
  const int64_t chunks = partial.extent(0), stride = partial.stride(0);
  float* partial_data = partial.data();
  const auto add_chunk = [&](int64_t k) {
    float* own = partial_data + k * stride;
    for_columns(kTotals * d, [&](auto at) { at.store(own, Vec{}); });
    const int64_t end = (k + 1) * kReductionRows < rows ? (k + 1) * kReductionRows : rows;
    for (int64_t r = k * kReductionRows; r < end; ++r) add_row(r, own);
  };
  if (sums != RowSums::add_up) {
    for_ranges(threads, chunks, rows * d, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) add_chunk(k);
    });
  }
  if (sums == RowSums::of_chunks) return;
  for_column_blocks(threads, chunks, d, [&](int64_t c, int64_t end) {
    for (int64_t t = 0; t < kTotals; ++t) add_partial_sums(partial_data + t * d, chunks, stride, c, end, totals[t]);
  });
}

}  // namespace
}  // namespace keel::KEEL_ISA
