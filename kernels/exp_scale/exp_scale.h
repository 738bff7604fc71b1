#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// y[i] = base[i] exp(s[i]): a positive scale that is learned through its logarithm.
/// base, s, y: [n] each, contiguous; no two overlap.  Computed in double, stored in fp32.  This and exp_scale_backward
/// throw Error(shape) on extents that disagree.
KEEL_API void exp_scale(Context&, View<const float, 1> base, View<const float, 1> s, View<float, 1> y);

/// ds[i] += dy[i] y[i].   y: as forward left it.  dy, y, ds: [n] each.
KEEL_API void exp_scale_backward(Context&, View<const float, 1> dy, View<const float, 1> y, View<float, 1> ds);

}  // namespace keel
