#pragma once

// What cuBLASLt's opaque types hold here, and what is checked before a product.

#include <cstdint>
#include <string>

#include "cublasLt.h"

namespace cuda_on_cpu {

struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t trans_a, trans_b;  // cublasOperation_t
  uint32_t epilogue;         // cublasLtEpilogue_t
  int32_t pointer_mode;
  int32_t bias_type;  // -1: that of D
  const void* bias;
};

struct Layout {
  uint32_t type;  // cudaDataType_t
  int32_t order;  // cublasLtOrder_t
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch;
  int64_t stride;

  bool by_rows() const { return order == CUBLASLT_ORDER_ROW; }
  int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  /// Contiguous runs of elements, `ld` apart.
  int64_t lines() const { return static_cast<int64_t>(by_rows() ? rows : cols); }
  int64_t line_length() const { return static_cast<int64_t>(by_rows() ? cols : rows); }
  int64_t extent_bytes() const { return ((batch - 1) * stride + (lines() - 1) * ld + line_length()) * element_bytes(); }
};

struct Preference {
  uint64_t workspace_bytes;
  uint32_t alignment[4];  // of A, B, C, D
};

struct Algorithm {
  uint64_t magic;
  uint64_t kind;  // of the products that it is for
  uint64_t workspace_bytes;
  uint32_t alignment[4];
};

/// A product with its matrices.
struct Matmul {
  Product product;
  Layout a, b, c, d;
  float alpha, beta;
  const char *A, *B, *C;
  char* D;

  int64_t m() const { return static_cast<int64_t>(d.rows); }
  int64_t n() const { return static_cast<int64_t>(d.cols); }
  int64_t k() const { return static_cast<int64_t>(product.trans_a != CUBLAS_OP_N ? a.rows : a.cols); }
};

/// CUBLAS_STATUS_INVALID_VALUE where shapes contradict each other, CUBLAS_STATUS_NOT_SUPPORTED for what the library or the
/// emulation does not compute.
cublasStatus_t check_product(const Product& product, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& d);

/// Computes it, on the running host thread.
void compute(const Matmul& matmul);

}  // namespace cuda_on_cpu
