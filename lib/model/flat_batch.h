#pragma once

#include <cstdint>

#include "keel/base/view.h"

namespace keel {

/// The one form of input that training, validation and evaluation share: the tokens of S sequences (or documents) one
/// after the other. All views are in device memory.
struct FlatBatch {
  View<const int32_t, 1> tokens;      ///< [N]
  View<const int32_t, 1> targets;     ///< [N]; null where no loss is wanted
  View<const int32_t, 1> positions;   ///< [N], for RoPE; restart at 0 in each document when documents are masked
  View<const float, 1> weights;       ///< [N], weight of each target in the loss; null where no loss is wanted
  View<const int32_t, 1> cu_seqlens;  ///< [S + 1], ascending from 0 to N; attention never crosses a bound
};

}  // namespace keel
