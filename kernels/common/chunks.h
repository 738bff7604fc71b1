#pragma once

#include <cstdint>

namespace keel {

/// Reductions over rows go over fixed chunks of this many rows and then over the chunks in order, never over threads,
/// so that a sum does not depend on how many threads computed it.
inline constexpr int64_t kReductionRows = 64;

inline int64_t chunk_count(int64_t rows, int64_t chunk = kReductionRows) {
  return (rows + chunk - 1) / chunk;
}

}  // namespace keel
