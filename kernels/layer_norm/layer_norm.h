#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[i,c] = f (w[c] (x[i,c] - mean[i]) r[i] + bias[c]),  mean[i] = mean_c x[i,c],
/// r[i] = 1 / sqrt(mean_c (x[i,c] - mean[i])^2 + eps).                                 Ba et al. 2016, arXiv:1607.06450
/// x, y: [rows, d], last axis contiguous, rows may be strided, y may be x; on a GPU y, or both, may be bf16.  w, bias:
/// [d].  f, `factor`: the host's.  r, mean: [rows], kept for the backward pass.  The variance is summed over the centred row, so that a large mean does not swallow it.  This and
/// layer_norm_backward throw Error(shape) on extents that disagree; what is not said to be the same array overlaps
/// nowhere.
KEEL_API void layer_norm(Context&, AnyView<const void, 2> x, View<const float, 1> w, View<const float, 1> bias,
                         float factor, float eps, AnyView<void, 2> y, View<float, 1> r, View<float, 1> mean);

/// With xh = r (x - mean), g = f dy and p = w g:   dx = r (p - mean_c(p) - xh mean_c(p xh));   dw += sum_rows g xh;
/// dbias += sum_rows g.   x and dx are alike; on a GPU dy, or all three, may be bf16.
/// dx: [rows, d], overwritten or, with accumulate_dx, added to; it may be dy when not accumulating.  dw, dbias: [d],
/// accumulated into.  partial: [chunk_count(rows), 2 d] scratch (common/chunks.h): the row sums go over fixed chunks.
KEEL_API void layer_norm_backward(Context&, AnyView<const void, 2> dy, AnyView<const void, 2> x, View<const float, 1> w,
                                  View<const float, 1> r, View<const float, 1> mean, float factor, AnyView<void, 2> dx,
                                  bool accumulate_dx, View<float, 1> dw, View<float, 1> dbias, View<float, 2> partial,
                                  RowSums sums = RowSums::everything);

}  // namespace keel
