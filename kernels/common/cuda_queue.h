#pragma once

// What the CUDA backend keeps for a device. For *_cuda.cpp and *_cuda.cu only.

#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "keel/kernels/adamw/adamw_table.h"
#include "keel/kernels/common/counted_memory.h"
#include "keel/kernels/common/cuda_device.h"

namespace keel {

/// Products' handle, plans and workspace (matmul_cuda.cpp).
struct CudaProducts;
struct CloseCudaProducts {
  void operator()(CudaProducts* products) const;
};

/// Device memory that an operation keeps, and that only grows.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() { free_counted(memory_); }

  /// Aligned to 256, holding whatever was left there. Error(memory).
  void* at_least(int64_t bytes);
  int64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

/// Events, used again once they have been read.
class TimeMarks {
 public:
  TimeMarks() = default;
  TimeMarks(const TimeMarks&) = delete;
  TimeMarks& operator=(const TimeMarks&) = delete;
  ~TimeMarks();

  int64_t record(cudaStream_t stream);
  double seconds_between(int64_t begin, int64_t end);

 private:
  std::vector<cudaEvent_t> events_;
  std::vector<int64_t> free_;
};

struct CudaQueue {
  int device = 0;
  int multiprocessors = 0;
  int64_t shared_bytes = 0;  ///< of shared memory that a block may have
  cudaStream_t stream = nullptr;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  void* sums = nullptr;  ///< of chunks of rows (chunk_sums.h): operations take these beside what others keep in scratch
  int64_t sums_bytes = 0;
  std::unique_ptr<CudaProducts, CloseCudaProducts> products;
  AdamwTable adamw;
  KeptMemory widened_weights;  ///< of linear: a block of rows in fp32
  KeptMemory token_order;      ///< of embedding_backward
  KeptMemory row_losses;       ///< of cross_entropy
  KeptMemory costs;            ///< of costs_on_device
  TimeMarks marks;
};

/// Launches a kernel that does nothing and waits for it. Error(device) if the GPU does not take it.
void run_nothing(CudaQueue& queue);

/// Device memory of at least the bytes that are wanted: what there is, or more in its place. Error(memory).
void* grown(void*& memory, int64_t& bytes, int64_t wanted);

/// Throws Error(device), or Error(memory) where memory ran out, naming what was tried, unless it is cudaSuccess.
void check(cudaError_t error, const char* what);

}  // namespace keel
