#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[n,c] += b[c].   y: [rows, d], last axis contiguous, rows may be strided.  b: [d].
KEEL_API void add_bias(Context&, View<const float, 1> b, View<float, 2> y);

/// db[c] += sum_n dy[n,c].   dy: [rows, d], rows may be strided.  db: [d], accumulated into.
/// partial: [chunk_count(rows), d] scratch (common/chunks.h): the sums go over fixed chunks of rows.
KEEL_API void add_bias_backward(Context&, View<const float, 2> dy, View<float, 1> db, View<float, 2> partial);

}  // namespace keel
