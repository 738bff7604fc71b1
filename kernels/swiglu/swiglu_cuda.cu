#include "keel/kernels/swiglu/swiglu_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

/// sigma(x) and 1 - sigma(x), from one exp of a number below zero: neither overflows or cancels.
struct Sigmoid {
  float sigma, complement;
  __device__ explicit Sigmoid(float x) {
    const float e = expf(-fabsf(x));
    const float larger = 1.0F / (1.0F + e), smaller = e * larger;
    sigma = x < 0 ? smaller : larger;
    complement = x < 0 ? larger : smaller;
  }
};

template <class T, class Kept>
struct Forward {
  Matrix<const T> gate, up;
  Matrix<T> h;
  Matrix<Kept> kept_gate, kept_up;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    const float4 x = at.load(gate[r]), u = at.load(up[r]);
    if (kept_gate.data != nullptr) {
      at.store(kept_gate[r], x);
      at.store(kept_up[r], u);
    }
    if (h.data != nullptr) at.store(h[r], x * each(x, [](float v) { return Sigmoid(v).sigma; }) * u);
  }
};

template <class T>
struct Backward {
  Matrix<const T> dh, gate, up;
  Matrix<T> d_gate, d_up, h;
  template <class At>
  __device__ void operator()(int64_t r, At at) const {
    const float4 d = at.load(dh[r]), x = at.load(gate[r]), u = at.load(up[r]);
    const float4 silu = each(x, [](float v) { return v * Sigmoid(v).sigma; });
    const float4 slope = each(x, [](float v) {
      const Sigmoid s(v);
      return s.sigma * (1.0F + v * s.complement);
    });
    at.store(d_gate[r], d * u * slope);
    at.store(d_up[r], d * silu);
    if (h.data != nullptr) at.store(h[r], silu * u);
  }
};

}  // namespace

void keel_cuda_swiglu(CudaQueue& queue, AnyView<const void, 2> gate, AnyView<const void, 2> up, AnyView<void, 2> h,
                      AnyView<void, 2> kept_gate, AnyView<void, 2> kept_up) {
  const bool wide = have_wide_rows(gate, up, h, kept_gate, kept_up);
  const ElementType kept = kept_gate ? kept_gate.type() : gate.type();
  with_element_types(kept, gate.type(), [&](auto kept_type, auto type) {
    using Body = Forward<typename decltype(type)::type, typename decltype(kept_type)::type>;
    for_elements(queue, gate.extent(0), gate.extent(1), wide, Body{gate, up, h, kept_gate, kept_up});
  });
}

void keel_cuda_swiglu_backward(CudaQueue& queue, AnyView<const void, 2> dh, AnyView<const void, 2> gate,
                               AnyView<const void, 2> up, AnyView<void, 2> d_gate, AnyView<void, 2> d_up,
                               AnyView<void, 2> h) {
  const bool wide = have_wide_rows(dh, gate, up, d_gate, d_up, h);
  with_element_type(gate.type(), [&](auto type) {
    using Body = Backward<typename decltype(type)::type>;
    for_elements(queue, gate.extent(0), gate.extent(1), wide, Body{dh, gate, up, d_gate, d_up, h});
  });
}

}  // namespace keel
