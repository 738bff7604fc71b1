#include "keel/kernels/moments/moments_cuda.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/row_kernel.cuh"
#include "keel/kernels/moments/moments.h"
#include "keel/kernels/moments/moments_cpu.h"

namespace keel {
namespace {

constexpr int kThreads = 512;

/// Rows laid one after the other, in groups of kWidth elements.
struct Groups {
  int64_t count;
  int64_t of_row;
};

template <bool kBoth, int kWidth, class Y>
__device__ void add_group(const float* x, const Y* y, double (&sums)[3]) {
  float x_at[kWidth], y_at[kWidth] = {};
  if constexpr (kWidth == 4) {
    const float4 v = load4(x);
    x_at[0] = v.x, x_at[1] = v.y, x_at[2] = v.z, x_at[3] = v.w;
    if constexpr (kBoth) {
      const float4 w = load4(y);
      y_at[0] = w.x, y_at[1] = w.y, y_at[2] = w.z, y_at[3] = w.w;
    }
  } else {
    x_at[0] = *x;
    if constexpr (kBoth) y_at[0] = load1(y);
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const double a = x_at[i], b = y_at[i];
    sums[0] += a * a;
    if constexpr (kBoth) {
      sums[1] += a * b;
      sums[2] += b * b;
    }
  }
}

/// A block sums a chunk: each thread every kThreads-th group, then the threads in the order of block_sum.
template <bool kBoth, int kWidth, class Y>
__global__ void __launch_bounds__(kThreads)
    sum_chunk(const Matrix<const float> x, const Matrix<const Y> y, const Groups groups, double* __restrict__ partial) {
  constexpr int64_t kGroups = kMomentsChunk / kWidth;
  const int64_t begin = blockIdx.x * kGroups + threadIdx.x, end = min((blockIdx.x + 1) * kGroups, groups.count);
  const int64_t row_step = kThreads / groups.of_row, column_step = kThreads % groups.of_row;
  int64_t r = begin / groups.of_row, c = begin % groups.of_row;
  double sums[3] = {};
#pragma unroll(sizeof(Y) == 4 ? 2 : 1)
  for (int64_t i = begin; i < end; i += kThreads) {
    add_group<kBoth, kWidth>(x[r] + kWidth * c, kBoth ? y[r] + kWidth * c : static_cast<const Y*>(nullptr), sums);
    r += row_step;
    c += column_step;
    if (c >= groups.of_row) {
      c -= groups.of_row;
      ++r;
    }
  }
  block_sum(sums);
  if (threadIdx.x != 0) return;
  double* own = partial + 3 * static_cast<int64_t>(blockIdx.x);
  own[0] = sums[0];
  own[1] = sums[1];
  own[2] = sums[2];
}

__global__ void __launch_bounds__(kThreads)
    log_sum_chunk(const float* __restrict__ r, int64_t n, double* __restrict__ partial) {
  const int64_t begin = blockIdx.x * kLogSumChunk, end = min(begin + kLogSumChunk, n);
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) sum += log(fabs(static_cast<double>(r[i])));
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// totals[b] += sum over chunks of partial[chunk * stride + b], a block for each b.
__global__ void __launch_bounds__(kThreads)
    add_up(const double* __restrict__ partial, int64_t chunks, int64_t stride, double* __restrict__ totals) {
  double sum = 0;
  for (int64_t k = threadIdx.x; k < chunks; k += kThreads) sum += partial[k * stride + blockIdx.x];
  sum = block_sum(sum);
  if (threadIdx.x == 0) totals[blockIdx.x] += sum;
}

template <int kWidth>
void sum_chunks(CudaQueue& queue, const View<const float, 2>& x, const AnyView<const void, 2>& y, double* partial) {
  const int64_t size = x.size();
  const bool dense = x.is_dense() && (!y || y.is_dense());
  const Groups groups{size / kWidth, (dense ? size : x.extent(1)) / kWidth};
  const auto chunks = static_cast<unsigned>(chunk_count(size, kMomentsChunk));
  with_element_type(y.type(), [&](auto type) {
    using Y = typename decltype(type)::type;
    launch(queue, y ? sum_chunk<true, kWidth, Y> : sum_chunk<false, kWidth, Y>, chunks, kThreads, 0, x, y, groups,
           partial);
  });
}

}  // namespace

void keel_cuda_moments(CudaQueue& queue, View<const float, 2> x, AnyView<const void, 2> y, double* sums,
                       double* partial) {
  if (x.size() == 0) return;
  if (have_wide_rows(x, y)) {
    sum_chunks<4>(queue, x, y, partial);
  } else {
    sum_chunks<1>(queue, x, y, partial);
  }
  launch(queue, add_up, y ? 3 : 1, kThreads, 0, partial, chunk_count(x.size(), kMomentsChunk), 3, sums);
}

void keel_cuda_log_sum(CudaQueue& queue, const float* r, int64_t n, double* sum, double* partial) {
  const int64_t chunks = chunk_count(n, kLogSumChunk);
  launch(queue, log_sum_chunk, static_cast<unsigned>(chunks), kThreads, 0, r, n, partial);
  if (n > 0) launch(queue, add_up, 1, kThreads, 0, partial, chunks, 1, sum);
}

}  // namespace keel
