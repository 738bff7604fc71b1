#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[n,c] += b[c].   y: [rows, d], last axis contiguous, rows may be strided; on a GPU it may be bf16.  b: [d], outside y.  This and
/// add_bias_backward throw Error(shape) on extents that disagree.
KEEL_API void add_bias(Context&, View<const float, 1> b, AnyView<void, 2> y);

/// db[c] += sum_n dy[n,c].   dy: [rows, d], as y above.  db: [d], accumulated into.
/// partial: [chunk_count(rows), d] scratch (common/chunks.h): the sums go over fixed chunks of rows. No two overlap.
KEEL_API void add_bias_backward(Context&, AnyView<const void, 2> dy, View<float, 1> db, View<float, 2> partial,
                                RowSums sums = RowSums::everything);

}  // namespace keel
