#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[r,c] = s[c] x[r,c].   x, y: [rows, d], last axis contiguous, rows may be strided, y may be x; on a
/// GPU y, or both, may be bf16.  s: [d].  This and column_scale_backward throw Error(shape) on extents that disagree; what is not said to be the same array overlaps
/// nowhere.
KEEL_API void column_scale(Context&, AnyView<const void, 2> x, View<const float, 1> s, AnyView<void, 2> y);

/// dx[r,c] = s[c] dy[r,c];   ds[c] += sum_r dy[r,c] x[r,c].
/// dx: [rows, d], overwritten, may be dy; of its type.  ds: [d], accumulated into.  partial: [chunk_count(rows), d] scratch
/// (common/chunks.h): the row sums go over fixed chunks.
KEEL_API void column_scale_backward(Context&, AnyView<const void, 2> dy, AnyView<const void, 2> x,
                                    View<const float, 1> s, AnyView<void, 2> dx, View<float, 1> ds,
                                    View<float, 2> partial, RowSums sums = RowSums::everything);

}  // namespace keel
