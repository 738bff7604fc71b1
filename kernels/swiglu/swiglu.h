#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"

namespace keel {

/// h = silu(gate) * up,  silu(x) = x / (1 + exp(-x)).                          Shazeer 2020, arXiv:2002.05202
/// gate, up, h: [N, F], last axis contiguous, rows may be strided; h may be gate or up; on a GPU all may be bf16.
/// kept_gate, kept_up: copies of gate and up, written past the caches, for a much later backward pass; both or none. h
/// may be null then: only these are wanted. They may be bf16 where the others are not, rounded as narrow() does (cast.h).
KEEL_API void swiglu(Context&, AnyView<const void, 2> gate, AnyView<const void, 2> up, AnyView<void, 2> h,
                     AnyView<void, 2> kept_gate = {}, AnyView<void, 2> kept_up = {});

/// d_gate = dh up sigma (1 + gate (1 - sigma)),  d_up = dh silu(gate),  sigma = 1 / (1 + exp(-gate)), and h once more, for
/// those who did not keep it.
/// All [N, F] as above; d_gate may be gate, d_up may be up, h may be dh or null; otherwise no two overlap.
KEEL_API void swiglu_backward(Context&, AnyView<const void, 2> dh, AnyView<const void, 2> gate,
                              AnyView<const void, 2> up, AnyView<void, 2> d_gate, AnyView<void, 2> d_up,
                              AnyView<void, 2> h);

}  // namespace keel
