#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/rms_norm/rms_norm.h"

namespace keel {

KEEL_DECLARE_ISA(void rms_norm(View<const float, 2> x, const float* w, float eps, View<float, 2> y, float* s,
                               int threads))
KEEL_DECLARE_ISA(void rms_norm_backward(View<const float, 2> dy, View<const float, 2> x, const float* w, const float* s,
                                        View<float, 2> dx, bool accumulate_dx, float* dw, View<float, 2> partial,
                                        int threads))

}  // namespace keel
