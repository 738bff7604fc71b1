#pragma once

#include "keel/kernels/common/cuda_backend.h"
#include "keel/kernels/rope/rope.h"

namespace keel {

/// Scratch of rope_table: the frequencies.
inline int64_t rope_table_bytes(int64_t pairs) {
  return pairs * static_cast<int64_t>(sizeof(double));
}
KEEL_CUDA_FUNCTION(void, rope_table, CudaQueue&, const double* frequencies, View<float, 2> cos, View<float, 2> sin)
KEEL_CUDA_FUNCTION(void, rope, CudaQueue&, const int32_t* positions, View<const float, 2> cos, View<const float, 2> sin,
                   AnyView<void, 3> x, RopeDirection direction)

}  // namespace keel
