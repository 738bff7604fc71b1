#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[r,c] = x[r,c] s[r] w[c],  s[r] = 1 / sqrt(mean_c x[r,c]^2 + eps).          Zhang & Sennrich 2019, arXiv:1910.07467
/// x, y: [rows, d], last axis contiguous, y may be x; on a GPU all matrices may be bf16.  w: [d].  s: [rows], kept for the backward pass.
/// This and the others below throw Error(shape) on extents that disagree; what is not said to be the same array
/// overlaps nowhere.
KEEL_API void rms_norm(Context&, AnyView<const void, 2> x, View<const float, 1> w, float eps, AnyView<void, 2> y,
                       View<float, 1> s);

/// With xh = s x and p = w dy:   dx = s (p - xh mean_c(p xh));   dw += sum_rows dy xh.
/// dx: [rows, d], overwritten or, with accumulate_dx, added to; it may be dy when not accumulating.  dw: [d],
/// accumulated into.  partial: [chunk_count(rows), d] scratch (common/chunks.h): the row sums go over fixed chunks.
KEEL_API void rms_norm_backward(Context&, AnyView<const void, 2> dy, AnyView<const void, 2> x, View<const float, 1> w,
                                View<const float, 1> s, AnyView<void, 2> dx, bool accumulate_dx, View<float, 1> dw,
                                View<float, 2> partial, RowSums sums = RowSums::everything);

/// The same for every head of x, y [N, heads, d] on its own: rows may be strided, y may be x, the gain w [d] is
/// shared by the heads.  s: [N, heads] dense.
KEEL_API void rms_norm(Context&, AnyView<const void, 3> x, View<const float, 1> w, float eps, AnyView<void, 3> y,
                       View<float, 2> s);
/// dx is overwritten; it may be dy.  partial: [chunk_count(N * heads), d] scratch.
KEEL_API void rms_norm_backward(Context&, AnyView<const void, 3> dy, AnyView<const void, 3> x, View<const float, 1> w,
                                View<const float, 2> s, AnyView<void, 3> dx, View<float, 1> dw, View<float, 2> partial,
                                RowSums sums = RowSums::everything);

}  // namespace keel
