#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/grad_norm/grad_norm.h"

namespace keel {

KEEL_DECLARE_ISA(void grad_norm(const float* g, int64_t size, StepScalars& scalars, double* partial, Threads threads))

}  // namespace keel
