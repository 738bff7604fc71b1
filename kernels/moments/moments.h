#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"

namespace keel {

/// Elements of one fixed chunk of the sums, counted along the rows one after the other: a chunk may hold many short rows
/// or a piece of a long one.
inline constexpr int64_t kMomentsChunk = 1 << 14;

/// sums[0] += sum x^2,  sums[1] += sum x y,  sums[2] += sum y^2, in double, over all elements; without y (null) only
/// sums[0] changes.
/// x, y: [rows, d] of any shape, [1, n] included; last axis contiguous, rows may be strided; they may be the same; on a
/// GPU y may be bf16.
/// sums: [3].  partial: [chunk_count(rows * d, kMomentsChunk), 3] scratch (common/chunks.h), dense.  Error(shape) on
/// extents that disagree.
KEEL_API void moments(Context&, View<const float, 2> x, AnyView<const void, 2> y, View<double, 1> sums,
                      View<double, 2> partial);

/// sum[0] += sum_i log |r[i]|, in double over fixed chunks; -infinity for a zero.   r: [n], contiguous.  sum: [1].
/// Error(shape), Error(memory).
KEEL_API void log_sum(Context&, View<const float, 1> r, View<double, 1> sum);
/// For so many elements at most.
KEEL_API void expect_log_sum(OperationMemory&, int64_t n);

}  // namespace keel
