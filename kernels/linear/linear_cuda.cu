#include "keel/kernels/linear/linear_cuda.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/row_kernel.cuh"
#include "keel/kernels/linear/weights.cuh"

namespace keel {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
/// Rows of W that a warp multiplies by together.
constexpr int kOutputs = 2;

__device__ inline float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

template <class X, class Y>
struct FewRows {
  Matrix<const X> x;
  int64_t N;
  WeightMatrix W;
  Matrix<Y> y;
};

/// A warp computes kOutputs columns of Y for all rows of X, of which there are at most R: each lane every 32nd group of 16
/// bytes of a row of W, or every 32nd weight. What there is too little of is computed once more and not stored.
template <WeightType kType, int R, bool kVectors, class X, class Y>
__global__ void __launch_bounds__(kThreads, 1) multiply_few(FewRows<X, Y> p) {
  const int lane = threadIdx.x % kWarp;
  const int64_t first = (blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp) * kOutputs;
  if (first >= p.W.rows) return;
  const int64_t second = min(first + 1, p.W.rows - 1);
  const Weights<kType> w[kOutputs] = {{p.W, first}, {p.W, second}};
  const X* x[R];
#pragma unroll
  for (int r = 0; r < R; ++r) x[r] = p.x[min(int64_t{r}, p.N - 1)];
  float sums[kOutputs][R] = {};
  if constexpr (kVectors) {
    constexpr int kVector = Weights<kType>::kVector;
#pragma unroll(R <= 2 ? 2 : 1)
    for (int64_t c = lane * kVector; c < p.W.columns; c += kWarp * kVector) {
      const typename Weights<kType>::Raw raw[kOutputs] = {w[0].raw(c), w[1].raw(c)};
#pragma unroll
      for (int i = 0; i < kVector / 4; ++i) {
        const float4 weights[kOutputs] = {raw[0].four(i), raw[1].four(i)};
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const float4 x4 = load4(x[r] + c + 4 * i);
#pragma unroll
          for (int j = 0; j < kOutputs; ++j) sums[j][r] = dot4(weights[j], x4, sums[j][r]);
        }
      }
    }
  } else {
    for (int64_t c = lane; c < p.W.columns; c += kWarp) {
      const float weights[kOutputs] = {w[0].one(c), w[1].one(c)};
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) sums[j][r] = fmaf(weights[j], load1(x[r] + c), sums[j][r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const float sum = warp_sum(sums[j][r]);
      if (lane == 0 && r < p.N && first + j < p.W.rows) store1(p.y[r] + first + j, sum);
    }
  }
}

template <WeightType kType, int R, class X, class Y>
void multiply(CudaQueue& queue, const CudaLinearRows& p) {
  const FewRows<X, Y> rows{p.X, p.X.extent(0), p.W, p.Y};
  const bool vectors = has_vectors<kType>(p.W) && has_wide_rows(p.X);
  launch(queue, vectors ? multiply_few<kType, R, true, X, Y> : multiply_few<kType, R, false, X, Y>,
         dim3(static_cast<unsigned>(chunk_count(p.W.rows, kWarps * kOutputs))), kThreads, 0, rows);
}

template <WeightType kType, class X, class Y>
void multiply(CudaQueue& queue, const CudaLinearRows& p) {
  static_assert(kCudaLinearRows == 12);
  const int64_t N = p.X.extent(0);
  if (N == 1) return multiply<kType, 1, X, Y>(queue, p);
  if (N == 2) return multiply<kType, 2, X, Y>(queue, p);
  if (N <= 4) return multiply<kType, 4, X, Y>(queue, p);
  if (N <= 8) return multiply<kType, 8, X, Y>(queue, p);
  multiply<kType, 12, X, Y>(queue, p);
}

/// Each row by a warp, as the groups of 16 bytes of its weights or one by one.
template <WeightType kType, class Y, bool kVectors>
__global__ void __launch_bounds__(kThreads)
    widen(WeightMatrix W, const int32_t* __restrict__ rows, int64_t count, Matrix<Y> y) {
  const int64_t n = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp;
  if (n >= count) return;
  const int lane = threadIdx.x % kWarp;
  const Weights<kType> w(W, rows == nullptr ? n : rows[n]);
  Y* to = y[n];
  if constexpr (kVectors) {
    constexpr int kVector = Weights<kType>::kVector;
    for (int64_t c = lane * kVector; c < W.columns; c += kWarp * kVector) {
      const typename Weights<kType>::Raw raw = w.raw(c);
#pragma unroll
      for (int i = 0; i < kVector / 4; ++i) store4(to + c + 4 * i, raw.four(i));
    }
  } else {
    for (int64_t c = lane; c < W.columns; c += kWarp) store1(to + c, w.one(c));
  }
}

}  // namespace

void keel_cuda_linear_rows(CudaQueue& queue, const CudaLinearRows& p) {
  if (p.X.type() == ElementType::bf16) {
    return with_element_type(p.Y.type(), [&](auto type) {
      multiply<WeightType::bf16, __nv_bfloat16, typename decltype(type)::type>(queue, p);
    });
  }
  for_weight_type(p.W.type, [&](auto type) { multiply<type.value, float, float>(queue, p); });
}

void keel_cuda_widen_rows(CudaQueue& queue, const WeightMatrix& W, const int32_t* rows, AnyView<void, 2> Y) {
  const int64_t count = Y.extent(0);
  const auto run = [&](auto type, auto element) {
    using Element = typename decltype(element)::type;
    const bool vectors = has_vectors<type.value>(W) && has_wide_rows(Y);
    launch(queue, vectors ? widen<type.value, Element, true> : widen<type.value, Element, false>,
           dim3(static_cast<unsigned>(chunk_count(count, kWarps))), kThreads, 0, W, rows, count, Matrix<Element>(Y));
  };
  if (Y.type() == ElementType::bf16) {
    return run(std::integral_constant<WeightType, WeightType::bf16>(), std::type_identity<__nv_bfloat16>());
  }
  for_weight_type(W.type, [&](auto type) { run(type, std::type_identity<float>()); });
}

float* keel_cuda_widened_weights(CudaQueue& queue, int64_t floats) {
  return static_cast<float*>(queue.widened_weights.at_least(floats * static_cast<int64_t>(sizeof(float))));
}

}  // namespace keel
