#pragma once

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/matmul/matmul.h"

namespace keel {

/// The workspace of products: what the library's fastest kernels for Hopper want at most.
inline constexpr int64_t kCudaProductsBytes = 32 << 20;

/// matmul.h on a device, extents and strides checked, no extent 0. Sums are fp32 whatever the types.
struct CudaProduct {
  MatmulShape shape;
  ElementType operands = ElementType::fp32;  ///< of A and B
  ElementType result = ElementType::fp32;    ///< of C; bf16 operands only
  bool has_bias = false;                     ///< not with accumulate
  bool operator==(const CudaProduct&) const = default;
};
/// bias: [n], read where the product has one.
KEEL_CUDA_FUNCTION(void, matmul, CudaQueue&, const CudaProduct& product, const void* a, const void* b, void* c,
                   const float* bias)

/// Rows of C that are `stride` elements apart. No parts at all are a sum of 0.
KEEL_CUDA_FUNCTION(void, sum_products, CudaQueue&, const float* parts, int64_t P, int64_t m, int64_t n, float* c,
                   int64_t stride, bool accumulate)

/// Bytes that the queue keeps for products, or will once there is one.
KEEL_CUDA_FUNCTION(int64_t, matmul_memory, CudaQueue&, bool there_will_be_one)

}  // namespace keel
