#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/swiglu/swiglu.h"

namespace keel {

KEEL_DECLARE_ISA(void swiglu(View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                             View<float, 2> kept_gate, View<float, 2> kept_up, Threads threads))
KEEL_DECLARE_ISA(void swiglu(View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                             View<Bf16, 2> kept_gate, View<Bf16, 2> kept_up, Threads threads))
KEEL_DECLARE_ISA(void swiglu_backward(View<const float, 2> dh, View<const float, 2> gate, View<const float, 2> up,
                                      View<float, 2> d_gate, View<float, 2> d_up, View<float, 2> h, Threads threads))

}  // namespace keel
