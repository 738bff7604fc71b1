#pragma once

#include "keel/base/options.h"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// --weights fp32|bf16|q8_0: what the matrices of a model are kept as in memory.
Option weights_option();
WeightType weights_of(const Options& options);

}  // namespace keel
