#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// to = from as bfloat16: the nearest, of two equally near ones the even one (IEEE 754); beyond the largest: infinity; a
/// NaN stays one. Written past the caches, for a much later backward pass. An error of at most 2^-8 |from| for numbers of
/// at least 2^-126, in the root mean square about 2^-9.5.
/// from, to: [N, C], last axis contiguous, rows may be strided; they do not overlap.
KEEL_API void narrow(Context&, View<const float, 2> from, View<Bf16, 2> to);

/// The same numbers in fp32.
KEEL_API void widen(Context&, View<const Bf16, 2> from, View<float, 2> to);

}  // namespace keel
