#include "keel/kernels/column_scale/column_scale_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

template <class Y, class X>
struct Scale {
  Matrix<const X> x;
  const float* s;
  Matrix<Y> y;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    at.store(y[r], at.load(s) * at.load(x[r]));
  }
};

template <class Y, class X>
struct Backward {
  Matrix<const Y> dy;
  Matrix<const X> x;
  const float* s;
  Matrix<Y> dx;
  template <class At>
  __device__ float4 operator()(int64_t r, At at) const {
    const float4 g = at.load(dy[r]), x_at = at.load(x[r]);
    at.store(dx[r], at.load(s) * g);
    return g * x_at;
  }
};

}  // namespace

void keel_cuda_column_scale(CudaQueue& queue, AnyView<const void, 2> x, const float* s, AnyView<void, 2> y) {
  const bool wide = have_wide_rows(x, y) && is_aligned(s, 16);
  with_element_types(y.type(), x.type(), [&](auto y_type, auto x_type) {
    using Body = Scale<typename decltype(y_type)::type, typename decltype(x_type)::type>;
    for_elements(queue, x.extent(0), x.extent(1), wide, Body{x, s, y});
  });
}

void keel_cuda_column_scale_backward(CudaQueue& queue, AnyView<const void, 2> dy, AnyView<const void, 2> x,
                                     const float* s, AnyView<void, 2> dx, float* ds, View<float, 2> partial,
                                     RowSums sums) {
  const bool wide = have_wide_rows(dy, x, dx) && is_aligned(s, 16);
  with_element_types(dy.type(), x.type(), [&](auto y_type, auto x_type) {
    using Body = Backward<typename decltype(y_type)::type, typename decltype(x_type)::type>;
    sum_over_rows(queue, x.extent(0), x.extent(1), wide, sums, partial, ds, Body{dy, x, s, dx});
  });
}

}  // namespace keel
