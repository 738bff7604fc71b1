#include "keel/kernels/column_scale/column_scale_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

template <class T>
struct Scale {
  Matrix<const T> x;
  const float* s;
  Matrix<T> y;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    at.store(y[r], at.load(s) * at.load(x[r]));
  }
};

template <class T>
struct Backward {
  Matrix<const T> dy, x;
  const float* s;
  Matrix<T> dx;
  template <class At>
  __device__ float4 operator()(int64_t r, At at) const {
    const float4 g = at.load(dy[r]), x_at = at.load(x[r]);
    at.store(dx[r], at.load(s) * g);
    return g * x_at;
  }
};

}  // namespace

void keel_cuda_column_scale(CudaQueue& queue, View<const float, 2> x, const float* s, View<float, 2> y) {
  const bool wide = have_wide_rows(x, y) && is_aligned(s, 16);
  for_elements(queue, x.extent(0), x.extent(1), wide, Scale<float>{x, s, y});
}

void keel_cuda_column_scale_backward(CudaQueue& queue, View<const float, 2> dy, View<const float, 2> x, const float* s,
                                     View<float, 2> dx, float* ds, View<float, 2> partial, RowSums sums) {
  const bool wide = have_wide_rows(dy, x, dx) && is_aligned(s, 16);
  sum_over_rows(queue, x.extent(0), x.extent(1), wide, sums, partial, ds, Backward<float>{dy, x, s, dx});
}

}  // namespace keel
