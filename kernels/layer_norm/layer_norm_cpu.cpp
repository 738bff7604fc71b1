#include "keel/kernels/layer_norm/layer_norm_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {
namespace {

/// sums: [2 d], of the gain's gradient and then the bias's.
template <bool kAccumulate>
void backward_row(const float* dy, const float* x, const float* w, float r, float mean, float factor, int64_t d,
                  float* dx, float* sums) {
  const TwoSums total = sum_columns2(d, [&](auto at, Vec& p_sum, Vec& px_sum) {
    const Vec p = at.load(w) * (factor * at.load(dy));  // 0 beyond the row
    p_sum += p;
    px_sum += p * (at.load(x) - mean);
  });
  const auto width = static_cast<float>(d);
  const float mean_p = total.first / width, mean_p_xh = r * total.second / width;
  float *dw = sums, *dbias = sums + d;
  for_columns(d, [&](auto at) {
    const Vec g = factor * at.load(dy), xh = r * (at.load(x) - mean);
    const Vec gradient = r * (at.load(w) * g - mean_p - xh * mean_p_xh);
    at.store(dw, at.load(dw) + g * xh);
    at.store(dbias, at.load(dbias) + g);
    at.store(dx, kAccumulate ? at.load(dx) + gradient : gradient);
  });
}

}  // namespace

void layer_norm(View<const float, 2> x, const float* w, const float* bias, float factor, float eps, View<float, 2> y,
                float* r, float* mean, Threads threads) {
  const int64_t rows = x.extent(0), d = x.extent(1), x_stride = x.stride(0), y_stride = y.stride(0);
  const float* x_data = x.data();
  float* y_data = y.data();
  for_ranges(threads, rows, rows * d, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x_data + i * x_stride;
      mean[i] = sum_columns(d, [&](auto at, Vec& s) { s += at.load(row); }) / static_cast<float>(d);
      float* to = y_data + i * y_stride;
      r[i] = layer_norm_row(row, mean[i], w, bias, eps, d, to);
      if (factor != 1) for_columns(d, [&](auto at) { at.store(to, factor * at.load(to)); });
    }
  });
}

void layer_norm_backward(View<const float, 2> dy, View<const float, 2> x, const float* w, const float* r,
                         const float* mean, float factor, View<float, 2> dx, bool accumulate_dx, float* dw,
                         float* dbias, View<float, 2> partial, RowSums sums, Threads threads) {
  const int64_t rows = x.extent(0), d = x.extent(1);
  const int64_t dy_stride = dy.stride(0), x_stride = x.stride(0), dx_stride = dx.stride(0);
  const float *dy_data = dy.data(), *x_data = x.data();
  float* dx_data = dx.data();
  const auto row = accumulate_dx ? backward_row<true> : backward_row<false>;
  sum_rows(rows, d, partial, {dw, dbias}, sums, threads, [&](int64_t i, float* own) {
    row(dy_data + i * dy_stride, x_data + i * x_stride, w, r[i], mean[i], factor, d, dx_data + i * dx_stride, own);
  });
}

}  // namespace keel::KEEL_ISA
