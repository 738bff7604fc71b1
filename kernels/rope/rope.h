#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"

namespace keel {

/// Fills cos and sin, [positions, head_dim / 2] each:  angle[p, i] = p * frequencies[i], computed in double.
/// frequencies: [head_dim / 2], radians a position.
KEEL_API void rope_table(Context&, HostView<const double, 1> frequencies, View<float, 2> cos, View<float, 2> sin);
/// For head_dim / 2 = `pairs`.
KEEL_API void expect_rope_table(OperationMemory&, int64_t pairs);

enum class RopeDirection { forward, backward };

/// Rotary position embedding in place, pairs (i, i + head_dim/2) as in Hugging Face Llama.
///   x1' = x1 cos - x2 sin,   x2' = x2 cos + x1 sin                        Su et al. 2021, arXiv:2104.09864
/// with row positions[n] of the tables; backward rotates by the negative angle.
/// x: [N, heads, head_dim], last axis contiguous, rows may be strided; on a GPU it may be bf16.  positions: [N], each below the tables' rows.
KEEL_API void rope(Context&, View<const int32_t, 1> positions, View<const float, 2> cos, View<const float, 2> sin,
                   AnyView<void, 3> x, RopeDirection direction = RopeDirection::forward);

}  // namespace keel
