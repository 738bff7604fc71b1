#include "keel/kernels/cast/cast_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {

// As narrow_rows on the CPU, to the bit: the conversion of the hardware has one NaN only.
__device__ inline unsigned narrowed(float value) {
  const unsigned bits = __float_as_uint(value);
  return (isnan(value) ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
}
__device__ inline void store1(Bf16* to, float value) {
  to->bits = static_cast<uint16_t>(narrowed(value));
}
__device__ inline void store4_global(Bf16* to, float4 v) {
  *reinterpret_cast<uint2*>(to) = make_uint2(narrowed(v.x) | narrowed(v.y) << 16, narrowed(v.z) | narrowed(v.w) << 16);
}

namespace {

template <class From, class To>
struct Copy {
  Matrix<const From> from;
  Matrix<To> to;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    at.store(to[r], at.load(from[r]));
  }
};

}  // namespace

void keel_cuda_narrow(CudaQueue& queue, View<const float, 2> from, View<Bf16, 2> to) {
  for_elements(queue, from.extent(0), from.extent(1), have_wide_rows(from, to), Copy<float, Bf16>{from, to});
}

void keel_cuda_widen(CudaQueue& queue, View<const Bf16, 2> from_bits, View<float, 2> to) {
  const View<const __nv_bfloat16, 2> from = device_bf16(from_bits);
  for_elements(queue, from.extent(0), from.extent(1), have_wide_rows(from, to), Copy<__nv_bfloat16, float>{from, to});
}

}  // namespace keel
