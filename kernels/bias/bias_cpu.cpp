#include "keel/kernels/bias/bias_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {

void add_bias(const float* b, View<float, 2> y, Threads threads) {
  const int64_t rows = y.extent(0), d = y.extent(1), stride = y.stride(0);
  float* y_data = y.data();
  for_ranges(threads, rows, rows * d, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = y_data + r * stride;
      for_columns(d, [&](auto at) { at.store(row, at.load(row) + at.load(b)); });
    }
  });
}

void add_bias_backward(View<const float, 2> dy, float* db, View<float, 2> partial, RowSums sums, Threads threads) {
  const int64_t rows = dy.extent(0), d = dy.extent(1), stride = dy.stride(0);
  const float* dy_data = dy.data();
  sum_rows(rows, d, partial, {db}, sums, threads, [&](int64_t r, float* own) {
    const float* row = dy_data + r * stride;
    for_columns(d, [&](auto at) { at.store(own, at.load(own) + at.load(row)); });
  });
}

}  // namespace keel::KEEL_ISA
