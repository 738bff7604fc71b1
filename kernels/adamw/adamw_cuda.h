#pragma once

#include <span>

#include "keel/kernels/adamw/adamw_arrays.h"
#include "keel/kernels/common/cuda_backend.h"

namespace keel {

/// A part of a segment for one block.
struct AdamwPiece {
  static constexpr int64_t kElements = 8192;  ///< at most
  int64_t offset;
  int size;
  ParameterClass parameter_class;
  float weight_decay, eps;
};

/// The table of segments is kept on the device until other ones come.
KEEL_CUDA_FUNCTION(void, adamw, CudaQueue&, std::span<const AdamwSegment> segments, double beta1, double beta2,
                   const StepScalars* scalars, const AdamwArrays& arrays)

}  // namespace keel
