#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/seam/seam.h"

namespace keel {

KEEL_DECLARE_ISA(void seam_forward(const SeamForward& seam, Threads threads))
KEEL_DECLARE_ISA(void seam_inner_again(View<const float, 2> y, const float* inner_gain, float inner_factor,
                                       const float* inner_r, View<float, 2> u, Threads threads))
/// At least one of Ds and Du is there; Du is there if inner_gain is.
KEEL_DECLARE_ISA(void seam_backward(const SeamBackward& seam, Threads threads))

}  // namespace keel
