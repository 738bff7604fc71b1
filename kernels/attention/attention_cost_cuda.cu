#include "keel/kernels/attention/attention_cuda.h"
#include "keel/kernels/attention/attention_pairs.h"
#include "keel/kernels/common/device.cuh"

namespace keel {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    add_cost(CudaAttentionSizes z, const int32_t* kv_lengths, CudaAttentionTerms terms, OperationCost* cost) {
  double sums[3] = {};  // of pairs, queries, keys
  for (int64_t s = threadIdx.x; s < z.sequences; s += kThreads) {
    const int64_t queries = z.cu_seqlens[s + 1] - z.cu_seqlens[s],
                  keys = kv_lengths == nullptr ? queries : kv_lengths[s];
    sums[0] += attention_pairs(queries, keys, z.window);
    sums[1] += static_cast<double>(queries);
    sums[2] += static_cast<double>(keys);
  }
  block_sum(sums);
  if (threadIdx.x != 0) return;
  cost->flops += terms.flops_of_pair * sums[0];
  cost->bytes += terms.bytes_of_query * sums[1] + terms.bytes_of_key * sums[2];
}

}  // namespace

void keel_cuda_attention_cost(CudaQueue& queue, const CudaAttentionSizes& sizes, const int32_t* kv_lengths,
                              const CudaAttentionTerms& terms, OperationCost* cost) {
  launch(queue, add_cost, 1, kThreads, 0, sizes, kv_lengths, terms, cost);
}

}  // namespace keel
