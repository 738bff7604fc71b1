#include "keel/kernels/rms_norm/rms_norm_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {
namespace {

float norm_row(const float* x, const float* w, float eps, int64_t d, float* y) {
  const float sum_squares = sum_columns(d, [&](auto at, Vec& s) {
    const Vec v = at.load(x);
    s += v * v;
  });
  const float s = inverse_rms(sum_squares, d, eps);
  for_columns(d, [&](auto at) { at.store(y, at.load(x) * s * at.load(w)); });
  return s;
}

template <bool kAccumulate>
void backward_row(const float* dy, const float* x, const float* w, float s, int64_t d, float* dx, float* dw) {
  const float sum_wdyx = sum_columns(d, [&](auto at, Vec& sums) { sums += at.load(w) * at.load(dy) * at.load(x); });
  const float mean = s * sum_wdyx / static_cast<float>(d);  // of p xh
  for_columns(d, [&](auto at) {
    const Vec g = at.load(dy), xh = s * at.load(x);
    const Vec gradient = s * (at.load(w) * g - xh * mean);
    at.store(dw, at.load(dw) + g * xh);
    at.store(dx, kAccumulate ? at.load(dx) + gradient : gradient);
  });
}

/// The heads of a [N, heads, d] view one after the other.
template <class T>
struct Heads {
  explicit Heads(const View<T, 3>& x) : data(x.data()), heads(x.extent(1)), row(x.stride(0)), head(x.stride(1)) {}
  T* operator[](int64_t r) const { return data + r / heads * row + r % heads * head; }
  T* data;
  int64_t heads, row, head;
};

}  // namespace

void rms_norm(View<const float, 3> x, const float* w, float eps, View<float, 3> y, float* s, Threads threads) {
  const int64_t rows = x.extent(0) * x.extent(1), d = x.extent(2);
  const Heads from(x);
  const Heads to(y);
  for_ranges(threads, rows, rows * d, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) s[r] = norm_row(from[r], w, eps, d, to[r]);
  });
}

void rms_norm_backward(View<const float, 3> dy, View<const float, 3> x, const float* w, const float* s,
                       View<float, 3> dx, bool accumulate_dx, float* dw, View<float, 2> partial, RowSums sums,
                       Threads threads) {
  const int64_t rows = x.extent(0) * x.extent(1), d = x.extent(2);
  const Heads dy_of(dy), x_of(x);
  const Heads dx_of(dx);
  const auto row = accumulate_dx ? backward_row<true> : backward_row<false>;
  sum_rows(rows, d, partial, {dw}, sums, threads,
           [&](int64_t r, float* own) { row(dy_of[r], x_of[r], w, s[r], d, dx_of[r], own); });
}

}  // namespace keel::KEEL_ISA
