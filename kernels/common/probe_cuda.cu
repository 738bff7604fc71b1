#include "keel/kernels/common/device.cuh"

namespace keel {

static __global__ void nothing() {}

void run_nothing(CudaQueue& queue) {
  launch(queue, nothing, dim3(1), dim3(1), 0);
  check(cudaStreamSynchronize(queue.stream), "a kernel");
}

}  // namespace keel
