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

template <class Kept>
void forward(CudaQueue& queue, const View<const float, 2>& gate, const View<const float, 2>& up,
             const View<float, 2>& h, const View<Kept, 2>& kept_gate, const View<Kept, 2>& kept_up) {
  for_elements(queue, gate.extent(0), gate.extent(1), have_wide_rows(gate, up, h, kept_gate, kept_up),
               Forward<float, Kept>{gate, up, h, kept_gate, kept_up});
}

}  // namespace

void keel_cuda_swiglu(CudaQueue& queue, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                      View<float, 2> kept_gate, View<float, 2> kept_up) {
  forward(queue, gate, up, h, kept_gate, kept_up);
}

void keel_cuda_swiglu_narrow(CudaQueue& queue, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                             View<Bf16, 2> kept_gate, View<Bf16, 2> kept_up) {
  forward(queue, gate, up, h, device_bf16(kept_gate), device_bf16(kept_up));
}

void keel_cuda_swiglu_backward(CudaQueue& queue, View<const float, 2> dh, View<const float, 2> gate,
                               View<const float, 2> up, View<float, 2> d_gate, View<float, 2> d_up, View<float, 2> h) {
  for_elements(queue, gate.extent(0), gate.extent(1), have_wide_rows(dh, gate, up, d_gate, d_up, h),
               Backward<float>{dh, gate, up, d_gate, d_up, h});
}

}  // namespace keel
