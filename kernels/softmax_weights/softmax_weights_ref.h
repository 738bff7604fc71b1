#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

// softmax_weights.h as a plain loop, for any scalar (double, std::complex<double>).
namespace keel::reference {

/// w[i] = exp((z[i] - largest) / temperature)
template <class S>
std::vector<S> softmax_weights(const std::vector<S>& z, double largest, double temperature) {
  using std::exp;
  std::vector<S> w;
  for (const S& logit : z) w.push_back(exp((logit - largest) / temperature));
  return w;
}

/// dz from dw
template <class S>
std::vector<S> softmax_weights_backward(const std::vector<S>& dw, const std::vector<S>& w, double temperature) {
  std::vector<S> dz;
  for (size_t i = 0; i < w.size(); ++i) dz.push_back(dw[i] * w[i] / temperature);
  return dz;
}

}  // namespace keel::reference
