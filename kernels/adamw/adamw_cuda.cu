#include "keel/kernels/adamw/adamw_cuda.h"

#include <algorithm>
#include <vector>

#include "keel/kernels/adamw/adamw_table.h"
#include "keel/kernels/common/row_kernel.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256;

__device__ AdamwCoefficients coefficients(const AdamwPiece& piece, double beta1, double beta2, const StepScalars& s) {
  const double lr = s.learning_rate[static_cast<int>(piece.parameter_class)];
  return {static_cast<float>(s.grad_scale),
          static_cast<float>(lr * piece.weight_decay),
          static_cast<float>(beta1),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(lr / s.bias_correction1),
          static_cast<float>(1 / s.bias_correction2),
          piece.eps};
}

__device__ inline void update(const AdamwCoefficients& k, float gradient, float& w, float& m, float& v) {
  const float g = k.grad_scale * gradient;
  const float decayed = w - k.decay * w;
  m = k.beta1 * m + k.one_minus_beta1 * g;
  v = k.beta2 * v + k.one_minus_beta2 * (g * g);
  w = decayed - k.step * m / (sqrtf(v * k.inv_correction2) + k.eps);
}

/// A block updates one piece. Its first `head` elements and the last few go one by one, the others four at a time where
/// all arrays allow it.
template <bool kCompute>
__global__ void __launch_bounds__(kThreads)
    update_pieces(const AdamwPiece* __restrict__ pieces, double beta1, double beta2,
                  const StepScalars* __restrict__ scalars, AdamwArrays arrays, bool aligned) {
  if (scalars->non_finite != 0) return;
  const AdamwPiece piece = pieces[blockIdx.x];
  KEEL_SHARED(AdamwCoefficients, shared, [1]);
  if (threadIdx.x == 0) shared[0] = coefficients(piece, beta1, beta2, *scalars);
  __syncthreads();
  const AdamwCoefficients k = shared[0];
  const float* __restrict__ gradient = arrays.gradient + piece.offset;
  float* __restrict__ w = arrays.w + piece.offset;
  float* __restrict__ m = arrays.m + piece.offset;
  float* __restrict__ v = arrays.v + piece.offset;
  __nv_bfloat16* __restrict__ compute = reinterpret_cast<__nv_bfloat16*>(arrays.compute) + piece.offset;
  const int head = aligned ? min(static_cast<int>((4 - piece.offset % 4) % 4), piece.size) : piece.size;
  const int fours = (piece.size - head) / 4;
#pragma unroll 2
  for (int i = threadIdx.x; i < fours; i += kThreads) {
    const int at = head + 4 * i;
    const float4 g4 = load4(gradient + at);
    float4 w4 = load4(w + at), m4 = load4(m + at), v4 = load4(v + at);
    update(k, g4.x, w4.x, m4.x, v4.x);
    update(k, g4.y, w4.y, m4.y, v4.y);
    update(k, g4.z, w4.z, m4.z, v4.z);
    update(k, g4.w, w4.w, m4.w, v4.w);
    store4(w + at, w4);
    store4(m + at, m4);
    store4(v + at, v4);
    if constexpr (kCompute) store4_global(compute + at, w4);
  }
  const auto update_one = [&](int i) {
    update(k, gradient[i], w[i], m[i], v[i]);
    if constexpr (kCompute) store1(compute + i, w[i]);
  };
  for (int i = threadIdx.x; i < head; i += kThreads) update_one(i);
  for (int i = head + 4 * fours + threadIdx.x; i < piece.size; i += kThreads) update_one(i);
}

std::vector<AdamwPiece> cut(std::span<const AdamwSegment> segments) {
  std::vector<AdamwPiece> pieces;
  for (const AdamwSegment& s : segments) {
    for (int64_t done = 0; done < s.size; done += AdamwPiece::kElements) {
      pieces.push_back({.offset = s.offset + done,
                        .size = static_cast<int>(std::min(AdamwPiece::kElements, s.size - done)),
                        .parameter_class = s.parameter_class,
                        .weight_decay = s.weight_decay,
                        .eps = s.eps});
    }
  }
  return pieces;
}

}  // namespace

void AdamwTable::update(CudaQueue& queue, std::span<const AdamwSegment> wanted) {
  if (std::ranges::equal(segments_, wanted)) return;
  const std::vector<AdamwPiece> pieces = cut(wanted);
  segments_.clear();
  if (std::ssize(pieces) > capacity_) {
    free_counted(std::exchange(pieces_, nullptr));
    capacity_ = 0;
    pieces_ = static_cast<AdamwPiece*>(
        allocate_counted(std::ssize(pieces) * static_cast<int64_t>(sizeof(AdamwPiece)), "table of segments"));
    capacity_ = std::ssize(pieces);
  }
  keel_cuda_copy_to_device(queue, pieces.data(), pieces_,
                           std::ssize(pieces) * static_cast<int64_t>(sizeof(AdamwPiece)));
  count_ = std::ssize(pieces);
  segments_.assign(wanted.begin(), wanted.end());
}

void keel_cuda_adamw(CudaQueue& queue, std::span<const AdamwSegment> segments, double beta1, double beta2,
                     const StepScalars* scalars, const AdamwArrays& arrays) {
  queue.adamw.update(queue, segments);
  const bool aligned = is_aligned(arrays.gradient, 16) && is_aligned(arrays.w, 16) && is_aligned(arrays.m, 16) &&
                       is_aligned(arrays.v, 16) && is_aligned(reinterpret_cast<const uint16_t*>(arrays.compute), 8);
  launch(queue, arrays.compute != nullptr ? update_pieces<true> : update_pieces<false>,
         dim3(static_cast<unsigned>(queue.adamw.count())), kThreads, 0, queue.adamw.pieces(), beta1, beta2, scalars,
         arrays, aligned);
}

}  // namespace keel
