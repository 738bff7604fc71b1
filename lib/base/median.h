#pragma once

#include <algorithm>
#include <vector>

namespace keel {

/// The middle one of the values in ascending order, the lower of two. Not of none.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace keel
