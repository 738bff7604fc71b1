#pragma once

#include "keel/kernels/adamw/adamw_arrays.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

KEEL_DECLARE_ISA(void adamw(const AdamwSegment* segments, int64_t count, double beta1, double beta2,
                            const StepScalars& scalars, const AdamwArrays& arrays, Threads threads))

}  // namespace keel
