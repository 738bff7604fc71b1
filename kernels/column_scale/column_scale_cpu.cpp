#include "keel/kernels/column_scale/column_scale_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {

void column_scale(View<const float, 2> x, const float* s, View<float, 2> y, Threads threads) {
  const int64_t rows = x.extent(0), d = x.extent(1), x_stride = x.stride(0), y_stride = y.stride(0);
  const float* x_data = x.data();
  float* y_data = y.data();
  for_ranges(threads, rows, rows * d, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = x_data + r * x_stride;
      float* to = y_data + r * y_stride;
      for_columns(d, [&](auto at) { at.store(to, at.load(s) * at.load(from)); });
    }
  });
}

void column_scale_backward(View<const float, 2> dy, View<const float, 2> x, const float* s, View<float, 2> dx,
                           float* ds, View<float, 2> partial, RowSums sums, Threads threads) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  const int64_t dy_stride = dy.stride(0), x_stride = x.stride(0), dx_stride = dx.stride(0);
  const float *dy_data = dy.data(), *x_data = x.data();
  float* dx_data = dx.data();
  sum_rows(rows, d, partial, {ds}, sums, threads, [&](int64_t r, float* own) {
    const float *dy_row = dy_data + r * dy_stride, *x_row = x_data + r * x_stride;
    float* dx_row = dx_data + r * dx_stride;
    for_columns(d, [&](auto at) {
      const Vec g = at.load(dy_row);
      at.store(own, at.load(own) + g * at.load(x_row));
      at.store(dx_row, at.load(s) * g);
    });
  });
}

}  // namespace keel::KEEL_ISA
