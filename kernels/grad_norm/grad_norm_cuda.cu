#include "keel/kernels/grad_norm/grad_norm_cuda.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kThreads = 512;

/// A block sums a chunk: each thread every kThreads-th group of four, then the threads in the order of block_sum.
__global__ void __launch_bounds__(kThreads)
    sum_of_chunk(const float* __restrict__ g, int64_t size, bool aligned, double* __restrict__ partial) {
  const int64_t begin = blockIdx.x * kGradNormChunk, end = min(begin + kGradNormChunk, size);
  const int64_t fours = aligned ? (end - begin) / 4 : 0;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < fours; i += kThreads) {
    const float4 v = load4(g + begin + 4 * i);
    const double x = v.x, y = v.y, z = v.z, w = v.w;
    sum += (x * x + y * y) + (z * z + w * w);
  }
  for (int64_t i = begin + 4 * fours + threadIdx.x; i < end; i += kThreads) {
    const double x = g[i];
    sum += x * x;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    finish(const double* __restrict__ partial, int64_t chunks, StepScalars* __restrict__ scalars) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  StepScalars& s = *scalars;
  s.grad_norm = sqrt(sum) / s.weight_sum;
  const double ratio = s.clip / (s.grad_norm + 1e-6);
  s.grad_scale = (ratio < 1 ? ratio : 1) / s.weight_sum;
  s.non_finite = isfinite(sum) && isfinite(s.loss_sum) && s.weight_sum > 0 ? 0 : 1;
}

}  // namespace

void keel_cuda_grad_norm(CudaQueue& queue, const float* g, int64_t size, StepScalars* scalars, double* partial) {
  const int64_t chunks = chunk_count(size, kGradNormChunk);
  launch(queue, sum_of_chunk, dim3(static_cast<unsigned>(chunks)), kThreads, 0, g, size, is_aligned(g, 16), partial);
  launch(queue, finish, 1, kThreads, 0, partial, chunks, scalars);
}

}  // namespace keel
