#include "keel/kernels/bias/bias_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

template <class T>
struct AddBias {
  const float* b;
  Matrix<T> y;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    at.store(y[r], at.load(y[r]) + at.load(b));
  }
};

template <class T>
struct Gradient {
  Matrix<const T> dy;
  template <class At>
  __device__ float4 operator()(int64_t r, At at) const {
    return at.load(dy[r]);
  }
};

}  // namespace

void keel_cuda_add_bias(CudaQueue& queue, const float* b, AnyView<void, 2> y) {
  const bool wide = have_wide_rows(y) && is_aligned(b, 16);
  with_element_type(y.type(), [&](auto type) {
    for_elements(queue, y.extent(0), y.extent(1), wide, AddBias<typename decltype(type)::type>{b, y});
  });
}

void keel_cuda_add_bias_backward(CudaQueue& queue, AnyView<const void, 2> dy, float* db, View<float, 2> partial,
                                 RowSums sums) {
  with_element_type(dy.type(), [&](auto type) {
    sum_over_rows(queue, dy.extent(0), dy.extent(1), have_wide_rows(dy), sums, partial, db,
                  Gradient<typename decltype(type)::type>{dy});
  });
}

}  // namespace keel
