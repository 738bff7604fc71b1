#include "keel/kernels/cross_entropy/cross_entropy_cuda.h"

#include <cfloat>
#include <climits>

#include "keel/kernels/common/row_kernel.cuh"

namespace keel {
namespace {

constexpr int kThreads = 512;
/// fp32 partial sums cover this many elements of a thread, four at a time.
constexpr int kSumBlock = 512;
/// Terms of the softmax below this count as 0: they change no sum.
constexpr float kNegligible = 0x1p-96F;

/// The sum of exp(l - largest) over the logits seen so far. Finite from the start, so that a logit of -infinity adds 0.
struct RunningSum {
  float largest = -FLT_MAX;
  float part = 0;  ///< of the last kSumBlock
  double sum = 0;

  __device__ void make_room_for(float l) {
    if (!(l > largest)) return;
    const float factor = expf(largest - l);
    part *= factor;
    sum *= factor;
    largest = l;
  }
  __device__ void add(float l) {
    make_room_for(l);
    part += expf(l - largest);
  }
  __device__ void add(float4 l) {
    make_room_for(fmaxf(fmaxf(l.x, l.y), fmaxf(l.z, l.w)));
    part += (expf(l.x - largest) + expf(l.y - largest)) + (expf(l.z - largest) + expf(l.w - largest));
  }
  __device__ void end_part() {
    sum += part;
    part = 0;
  }
};

/// The largest logit so far, of equal ones the first; NaN never.
struct First {
  float largest = -INFINITY;
  int id = INT_MAX;

  __device__ void add(float l, int at) {
    if (l > largest || (l == largest && at < id)) {
      largest = l;
      id = at;
    }
  }
};

__device__ inline float block_max(float value) {
  KEEL_SHARED(float, parts, [kWarp]);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  value = warp_max(value);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return warp_max(lane < kThreads / kWarp ? parts[lane] : -FLT_MAX);
}

/// Of the block.
__device__ inline int block_first(First first) {
  KEEL_SHARED(float, largest, [kThreads]);
  KEEL_SHARED(int, ids, [kThreads]);
  const int t = threadIdx.x;
  largest[t] = first.largest;
  ids[t] = first.id;
  __syncthreads();
  for (int reach = kThreads / 2; reach > 0; reach /= 2) {
    if (t < reach) {
      first.add(largest[t + reach], ids[t + reach]);
      largest[t] = first.largest;
      ids[t] = first.id;
    }
    __syncthreads();
  }
  return ids[0] == INT_MAX ? -1 : ids[0];
}

__device__ inline float gradient_of(float l, float largest, float factor) {
  const float e = expf(l - largest);
  return e < kNegligible ? 0.0F : e * factor;
}

template <class Gradient>
struct Rows {
  Matrix<const float> logits;
  Matrix<Gradient> gradient;
  int V;
  const int32_t* targets;
  const float* weights;
  float* nll;
  int32_t* argmax;
  double* losses;
};

/// A block takes a row: its first V / 4 * 4 logits in fours where `four`, the rest one by one.
template <bool kArgmax, class Gradient>
__global__ void __launch_bounds__(kThreads) losses_of_rows(Rows<Gradient> p, bool four) {
  const int64_t n = blockIdx.x;
  const int t = threadIdx.x, V = p.V, fours = four ? V / 4 : 0;
  const float* l = p.logits[n];
  Gradient* gradient = p.gradient[n];
  const float weight = p.weights[n];
  if (weight == 0) {
    for (int v = t; gradient != nullptr && v < V; v += kThreads) store1(gradient + v, 0);
    if (t != 0) return;
    if (p.nll != nullptr) p.nll[n] = 0;
    if (p.losses != nullptr) p.losses[n] = 0;
    if (kArgmax) p.argmax[n] = -1;
    return;
  }
  const int target = p.targets[n];
  const double target_logit = l[target];
  RunningSum running;
  First first;
  constexpr int kSteps = kSumBlock / 4;
  for (int begin = t; begin < fours; begin += kSteps * kThreads) {
    const int end = min(fours, begin + kSteps * kThreads);
#pragma unroll 2
    for (int i = begin; i < end; i += kThreads) {
      const float4 l4 = load4(l + 4 * i);
      running.add(l4);
      if constexpr (kArgmax) {
        first.add(l4.x, 4 * i);
        first.add(l4.y, 4 * i + 1);
        first.add(l4.z, 4 * i + 2);
        first.add(l4.w, 4 * i + 3);
      }
    }
    running.end_part();
  }
  for (int begin = 4 * fours + t; begin < V; begin += kSumBlock * kThreads) {
    for (int v = begin; v < min(V, begin + kSumBlock * kThreads); v += kThreads) {
      running.add(l[v]);
      if constexpr (kArgmax) first.add(l[v], v);
    }
    running.end_part();
  }
  const float largest = block_max(running.largest);
  const double sum = block_sum(running.sum * expf(running.largest - largest));
  if constexpr (kArgmax) {
    const int id = block_first(first);
    if (t == 0) p.argmax[n] = id;
  }
  if (t == 0) {
    const double nll = log(sum) + (largest - target_logit);
    if (p.nll != nullptr) p.nll[n] = static_cast<float>(nll);
    if (p.losses != nullptr) p.losses[n] = weight * nll;
  }
  if (gradient == nullptr) return;
  const auto factor = static_cast<float>(weight / sum);
#pragma unroll 2
  for (int i = t; i < fours; i += kThreads) {
    float4 g = load4(l + 4 * i);
    g = make_float4(gradient_of(g.x, largest, factor), gradient_of(g.y, largest, factor),
                    gradient_of(g.z, largest, factor), gradient_of(g.w, largest, factor));
    if (i == target / 4) {
      g.x -= target % 4 == 0 ? weight : 0;
      g.y -= target % 4 == 1 ? weight : 0;
      g.z -= target % 4 == 2 ? weight : 0;
      g.w -= target % 4 == 3 ? weight : 0;
    }
    store4_global(gradient + 4 * i, g);
  }
  for (int v = 4 * fours + t; v < V; v += kThreads) {
    store1(gradient + v, gradient_of(l[v], largest, factor) - (v == target ? weight : 0));
  }
}

__global__ void __launch_bounds__(kThreads)
    add_sums(const double* __restrict__ losses, const float* __restrict__ weights, int64_t N, StepScalars* scalars) {
  double sums[2] = {0, 0};
  for (int64_t n = threadIdx.x; n < N; n += kThreads) {
    sums[0] += losses[n];
    sums[1] += weights[n];
  }
  block_sum(sums);
  if (threadIdx.x != 0) return;
  scalars->loss_sum += sums[0];
  scalars->weight_sum += sums[1];
}

}  // namespace

void keel_cuda_cross_entropy_rows(CudaQueue& queue, const CudaCrossEntropyRows& p) {
  const auto four = [](const auto& x) {
    return !x || (reinterpret_cast<uintptr_t>(x.data()) % 16 == 0 && (x.extent(0) == 1 || x.stride(0) % 4 == 0));
  };
  with_element_type(p.gradient.type(), [&](auto type) {
    using Gradient = typename decltype(type)::type;
    const Rows<Gradient> rows{p.logits, p.gradient, static_cast<int>(p.logits.extent(1)), p.targets, p.weights, p.nll,
                              p.argmax, p.losses};
    launch(queue, p.argmax != nullptr ? losses_of_rows<true, Gradient> : losses_of_rows<false, Gradient>,
           dim3(static_cast<unsigned>(p.logits.extent(0))), kThreads, 0, rows, four(p.logits) && four(p.gradient));
  });
}

double* keel_cuda_row_losses(CudaQueue& queue, int64_t N) {
  return static_cast<double*>(queue.row_losses.at_least(row_losses_bytes(N)));
}

void keel_cuda_cross_entropy_sums(CudaQueue& queue, const double* losses, const float* weights, int64_t N,
                                  StepScalars* scalars) {
  launch(queue, add_sums, 1, kThreads, 0, losses, weights, N, scalars);
}

}  // namespace keel
