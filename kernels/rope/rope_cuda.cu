#include "keel/kernels/rope/rope_cuda.h"

#include "keel/kernels/common/element_kernel.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) fill_table(const double* __restrict__ frequencies, int64_t positions,
                                                       int pairs, Matrix<float> cos_rows, Matrix<float> sin_rows) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t p = index / pairs, i = index % pairs;
  if (p >= positions) return;
  double sine = 0, cosine = 0;
  sincos(static_cast<double>(p) * frequencies[i], &sine, &cosine);
  cos_rows[p][i] = static_cast<float>(cosine);
  sin_rows[p][i] = static_cast<float>(sine);
}

/// Pairs of a token: those of all heads, one after the other, are columns. Four at a time lie in one head.
template <class T>
struct Rotate {
  const int32_t* positions;
  Matrix<const float> cos, sin;
  T* x;
  int64_t row, head;
  int pairs;
  float sign;

  template <bool kWide>
  __device__ void operator()(int64_t n, Columns<kWide> at) const {
    if constexpr (kWide) {
      rotate(n, at);
    } else {
      for (int i = 0; i < 4 && i < at.count; ++i) rotate(n, Columns<false>{at.c + i, 1, 0});
    }
  }

 private:
  template <class At>
  __device__ void rotate(int64_t n, At at) const {
    const int h = at.c / pairs;
    const At in_head{at.c - h * pairs, at.count, 0};
    T* first_row = x + n * row + h * head;
    T* second_row = first_row + pairs;
    const int32_t position = positions[n];
    const float4 c = in_head.load(cos[position]), s = in_head.load(sin[position]);
    const float4 first = in_head.load(first_row), second = in_head.load(second_row);
    in_head.store(first_row, fma4(-sign * s, second, c * first));
    in_head.store(second_row, fma4(sign * s, first, c * second));
  }
};

}  // namespace

void keel_cuda_rope_table(CudaQueue& queue, const double* frequencies, View<float, 2> cos, View<float, 2> sin) {
  const int64_t positions = cos.extent(0), pairs = cos.extent(1);
  const int64_t bytes = rope_table_bytes(pairs);
  auto* on_device = static_cast<double*>(keel_cuda_scratch(queue, bytes));
  keel_cuda_copy_to_device(queue, frequencies, on_device, bytes);
  const auto blocks = static_cast<unsigned>((positions * pairs + kThreads - 1) / kThreads);
  launch(queue, fill_table, blocks, kThreads, 0, on_device, positions, static_cast<int>(pairs), cos, sin);
}

void keel_cuda_rope(CudaQueue& queue, const int32_t* positions, View<const float, 2> cos, View<const float, 2> sin,
                    AnyView<void, 3> x, RopeDirection direction) {
  const int64_t rows = x.extent(0), heads = x.extent(1), pairs = x.extent(2) / 2;
  with_element_type(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Rotate<T> rotate{.positions = positions,
                           .cos = cos,
                           .sin = sin,
                           .x = static_cast<T*>(x.data()),
                           .row = x.stride(0),
                           .head = x.stride(1),
                           .pairs = static_cast<int>(pairs),
                           .sign = direction == RopeDirection::forward ? 1.0F : -1.0F};
    for_elements(queue, rows, heads * pairs, pairs % 4 == 0 && have_wide_rows(cos, sin, x), rotate);
  });
}

}  // namespace keel
