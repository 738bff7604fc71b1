#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "keel/model/parameters.h"

namespace keel::testing {

/// `weights` of a layout where what a decoder in bf16 rounds of them, matrices and the biases of products, is moved by
/// `round` (Perturbation, or none).
inline std::vector<double> moved_weights(const ParameterLayout& layout, const std::vector<float>& weights,
                                         const std::function<void(std::vector<double>&)>& round) {
  std::vector<double> moved(weights.begin(), weights.end());
  for (const Parameter& p : layout.parameters) {
    if (!round || (!p.is_matrix() && !p.name.ends_with("_proj.bias"))) continue;
    std::vector<double> values(moved.begin() + p.offset, moved.begin() + p.offset + p.size);
    round(values);
    std::copy(values.begin(), values.end(), moved.begin() + p.offset);
  }
  return moved;
}

}  // namespace keel::testing
