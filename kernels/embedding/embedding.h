#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// y[n,:] = table[tokens[n],:]
/// tokens: [N], each in [0, V) (checked where data is read, not here).  table: [V, d] dense, in any type of weights.
/// y: [N, d] dense; on a GPU it may be bf16, where the table is. They do not overlap.
KEEL_API void embedding(Context&, View<const int32_t, 1> tokens, const WeightMatrix& table, AnyView<void, 2> y);

/// d_table[v,:] += sum over n with tokens[n] = v of dy[n,:], in ascending n whatever the number of threads.
/// dy: [N, d] dense; on a GPU it may be bf16.  d_table: [V, d] dense, accumulated into.
KEEL_API void embedding_backward(Context&, View<const int32_t, 1> tokens, AnyView<const void, 2> dy,
                                 View<float, 2> d_table);
/// For so many tokens at most.
KEEL_API void expect_embedding_backward(OperationMemory&, int64_t tokens);

}  // namespace keel
