#include "keel/kernels/swiglu/swiglu_cpu.h"

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/simd.h"
#include "keel/kernels/common/vector_math.h"

namespace keel::KEEL_ISA {
namespace {

void forward_row(const float* gate, const float* up, int64_t columns, float* h) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) h[i] = gate[i] * vector_sigmoid(gate[i]) * up[i];
}

template <class T>
void copy_past_caches(const float* from, int64_t columns, T* to) {
  for_columns(columns, [&](auto at) { at.store_past_caches(to, at.load(from)); });
}

template <bool kWithH>
void backward_row(const float* dh, const float* gate, const float* up, int64_t columns, float* d_gate, float* d_up,
                  float* h) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) {
    const float x = gate[i], d = dh[i], u = up[i];
    // sigma and 1 - sigma from one exp of a number below zero: neither overflows or cancels.
    const float e = vector_exp(-__builtin_fabsf(x));
    const float larger = vector_reciprocal_1_2(1.0F + e), smaller = e * larger;
    const float sigma = x < 0.0F ? smaller : larger, complement = x < 0.0F ? larger : smaller;
    d_gate[i] = d * u * (sigma * (1.0F + x * complement));
    d_up[i] = d * (x * sigma);
    if (kWithH) h[i] = x * sigma * u;
  }
}

template <class Kept>
void forward(View<const float, 2> gate, View<const float, 2> up, View<float, 2> h, View<Kept, 2> kept_gate,
             View<Kept, 2> kept_up, Threads threads) {
  const int64_t rows = gate.extent(0), columns = gate.extent(1);
  const auto row_of = [](const auto& view, int64_t r) { return view.data() + r * view.stride(0); };
  for_ranges(threads, rows, rows * columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (kept_gate) {
        copy_past_caches(row_of(gate, r), columns, row_of(kept_gate, r));
        copy_past_caches(row_of(up, r), columns, row_of(kept_up, r));
      }
      if (h) forward_row(row_of(gate, r), row_of(up, r), columns, row_of(h, r));
    }
    finish_stores_past_caches();
  });
}

}  // namespace

void swiglu(View<const float, 2> gate, View<const float, 2> up, View<float, 2> h, View<float, 2> kept_gate,
            View<float, 2> kept_up, Threads threads) {
  forward(gate, up, h, kept_gate, kept_up, threads);
}

void swiglu(View<const float, 2> gate, View<const float, 2> up, View<float, 2> h, View<Bf16, 2> kept_gate,
            View<Bf16, 2> kept_up, Threads threads) {
  forward(gate, up, h, kept_gate, kept_up, threads);
}

void swiglu_backward(View<const float, 2> dh, View<const float, 2> gate, View<const float, 2> up, View<float, 2> d_gate,
                     View<float, 2> d_up, View<float, 2> h, Threads threads) {
  const int64_t rows = gate.extent(0), columns = gate.extent(1);
  const float *dh_data = dh.data(), *gate_data = gate.data(), *up_data = up.data();
  float *d_gate_data = d_gate.data(), *d_up_data = d_up.data(), *h_data = h.data();
  const int64_t dh_stride = dh.stride(0), gate_stride = gate.stride(0), up_stride = up.stride(0);
  const int64_t d_gate_stride = d_gate.stride(0), d_up_stride = d_up.stride(0), h_stride = h.stride(0);
  const auto row = h_data != nullptr ? backward_row<true> : backward_row<false>;
  for_ranges(threads, rows, rows * columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      row(dh_data + r * dh_stride, gate_data + r * gate_stride, up_data + r * up_stride, columns,
          d_gate_data + r * d_gate_stride, d_up_data + r * d_up_stride,
          h_data != nullptr ? h_data + r * h_stride : nullptr);
    }
  });
}

}  // namespace keel::KEEL_ISA
