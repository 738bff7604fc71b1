#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/step_scalars.h"

namespace keel {

/// Elements of one fixed chunk of the sum of squares.
inline constexpr int64_t kGradNormChunk = 1 << 16;

/// From the summed gradients g [P] (sums over target tokens) fills grad_norm, grad_scale and non_finite of `scalars`
/// (see StepScalars). Squares are added in double, over fixed chunks and then in chunk order.
/// partial: [chunk_count(P, kGradNormChunk)] doubles of scratch.
KEEL_API void grad_norm(Context&, View<const float, 1> g, View<StepScalars, 1> scalars, View<double, 1> partial);

}  // namespace keel
