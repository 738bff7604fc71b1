#pragma once

#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/kernels/embedding/embedding.h"

namespace keel {

KEEL_DECLARE_ISA(void embedding(const int32_t* tokens, int64_t count, const float* table, int64_t d, float* y,
                                Threads threads))
KEEL_DECLARE_ISA(void embedding_backward(const int32_t* tokens, int64_t count, const float* dy, int64_t d,
                                         float* d_table, Threads threads))

}  // namespace keel
