#pragma once

// What the CUDA backend keeps for a device. For *_cuda.cpp and *_cuda.cu only.

#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "keel/kernels/adamw/adamw_table.h"
#include "keel/kernels/common/cuda_device.h"

namespace keel {

/// Products' handle, plans and workspace (matmul_cuda.cpp).
struct CudaProducts;
struct CloseCudaProducts {
  void operator()(CudaProducts* products) const;
};

struct CudaQueue {
  int device = 0;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  std::unique_ptr<CudaProducts, CloseCudaProducts> products;
  AdamwTable adamw;
};

/// Throws Error(device), or Error(memory) where memory ran out, naming what was tried, unless it is cudaSuccess.
void check(cudaError_t error, const char* what);

}  // namespace keel
