#pragma once

#include <cmath>
#include <vector>

namespace keel::reference {

/// base, s: [n].
template <class S>
std::vector<S> exp_scale(const std::vector<S>& base, const std::vector<S>& s) {
  using std::exp;
  std::vector<S> y(base);
  for (size_t i = 0; i < y.size(); ++i) y[i] = base[i] * exp(s[i]);
  return y;
}

/// ds[i] = dy[i] y[i]
template <class S>
std::vector<S> exp_scale_backward(const std::vector<S>& dy, const std::vector<S>& y) {
  std::vector<S> ds(dy);
  for (size_t i = 0; i < ds.size(); ++i) ds[i] = dy[i] * y[i];
  return ds;
}

}  // namespace keel::reference
