#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// cache[rows[n], h, :] = x[n, h, :]: keys or values of new tokens go to their rows of a cache, which attention then
/// reads through a page table.
/// x: [N, kv_heads, head_dim], last axis contiguous, rows may be strided.  rows: [N], each in 0 .. R - 1, no
/// two equal.  cache: [R, kv_heads, head_dim], rows may be strided; overlaps x nowhere; on a GPU both may be bf16.  Throws Error(shape) on extents
/// that disagree and on a row that the cache has not, before anything is written; on a GPU, whose memory the host does
/// not read, a token of such a row is left out and all others are stored.
KEEL_API void kv_store(Context&, AnyView<const void, 3> x, View<const int32_t, 1> rows, AnyView<void, 3> cache);

}  // namespace keel
