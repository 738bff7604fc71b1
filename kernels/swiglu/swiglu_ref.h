#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace keel::reference {

template <class S>
std::vector<S> swiglu(const std::vector<S>& gate, const std::vector<S>& up) {
  using std::exp;
  std::vector<S> h;
  for (size_t i = 0; i < gate.size(); ++i) h.push_back(gate[i] / (S(1) + exp(-gate[i])) * up[i]);
  return h;
}

template <class S>
struct SwigluGradients {
  std::vector<S> d_gate, d_up;
};

template <class S>
SwigluGradients<S> swiglu_backward(const std::vector<S>& dh, const std::vector<S>& gate, const std::vector<S>& up) {
  using std::exp;
  SwigluGradients<S> result;
  for (size_t i = 0; i < gate.size(); ++i) {
    const S sigma = S(1) / (S(1) + exp(-gate[i])), complement = S(1) / (S(1) + exp(gate[i]));
    result.d_gate.push_back(dh[i] * up[i] * sigma * (S(1) + gate[i] * complement));
    result.d_up.push_back(dh[i] * gate[i] * sigma);
  }
  return result;
}

}  // namespace keel::reference
