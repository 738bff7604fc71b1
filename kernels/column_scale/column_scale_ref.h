#pragma once

#include <cstdint>
#include <vector>

namespace keel::reference {

/// x: [rows, d] dense, s: [d].
template <class S>
std::vector<S> column_scale(const std::vector<S>& x, const std::vector<S>& s) {
  std::vector<S> y(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] = s[i % s.size()] * x[i];
  return y;
}

template <class S>
struct ColumnScaleGradients {
  std::vector<S> dx, ds;
};

template <class S>
ColumnScaleGradients<S> column_scale_backward(const std::vector<S>& dy, const std::vector<S>& x,
                                              const std::vector<S>& s) {
  ColumnScaleGradients<S> result{column_scale(dy, s), std::vector<S>(s.size())};
  for (size_t i = 0; i < x.size(); ++i) result.ds[i % s.size()] += dy[i] * x[i];
  return result;
}

}  // namespace keel::reference
