#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// h = silu(gate) * up,  silu(x) = x / (1 + exp(-x)).                          Shazeer 2020, arXiv:2002.05202
/// gate, up, h: [N, F], last axis contiguous, rows may be strided; h may be gate or up.
/// kept_gate, kept_up: copies of gate and up, written past the caches, for a much later backward pass; both or none. h
/// may be null then: only these are wanted. As bfloat16 they are rounded as narrow() does (cast.h); h is not.
KEEL_API void swiglu(Context&, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                     View<float, 2> kept_gate = {}, View<float, 2> kept_up = {});
KEEL_API void swiglu(Context&, View<const float, 2> gate, View<const float, 2> up, View<float, 2> h,
                     View<Bf16, 2> kept_gate, View<Bf16, 2> kept_up);

/// d_gate = dh up sigma (1 + gate (1 - sigma)),  d_up = dh silu(gate),  sigma = 1 / (1 + exp(-gate)), and h once more, for
/// those who did not keep it.
/// All [N, F] as above; d_gate may be gate, d_up may be up, h may be dh or null; otherwise no two overlap.
KEEL_API void swiglu_backward(Context&, View<const float, 2> dh, View<const float, 2> gate, View<const float, 2> up,
                              View<float, 2> d_gate, View<float, 2> d_up, View<float, 2> h);

}  // namespace keel
