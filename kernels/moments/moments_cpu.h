#pragma once

#include "keel/base/view.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/common/thread_team.h"

namespace keel {

/// Elements of one fixed chunk of log_sum: a logarithm takes as long as some ten products.
inline constexpr int64_t kLogSumChunk = 1 << 10;

KEEL_DECLARE_ISA(void moments(View<const float, 2> x, View<const float, 2> y, double* sums, double* partial,
                              Threads threads))
/// partial: [chunk_count(n, kLogSumChunk)].
KEEL_DECLARE_ISA(void log_sum(const float* r, int64_t n, double& sum, double* partial, Threads threads))

}  // namespace keel
