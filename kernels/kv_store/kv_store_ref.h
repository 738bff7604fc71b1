#pragma once

#include <cstdint>
#include <vector>

namespace keel::reference {

/// x: [N, width] dense, cache: [R, width] dense.
template <class S>
void kv_store(const std::vector<S>& x, const std::vector<int32_t>& rows, int64_t width, std::vector<S>& cache) {
  for (size_t n = 0; n < rows.size(); ++n) {
    for (int64_t c = 0; c < width; ++c) cache[rows[n] * width + c] = x[n * width + c];
  }
}

}  // namespace keel::reference
