#pragma once

#include <cstdint>
#include <vector>

namespace keel::reference {

/// table: [V, d] dense.
template <class S>
std::vector<S> embedding(const std::vector<int32_t>& tokens, const std::vector<S>& table, int64_t d) {
  std::vector<S> y;
  for (int32_t token : tokens) y.insert(y.end(), table.begin() + token * d, table.begin() + (token + 1) * d);
  return y;
}

template <class S>
std::vector<S> embedding_backward(const std::vector<int32_t>& tokens, const std::vector<S>& dy, int64_t vocab,
                                  int64_t d) {
  std::vector<S> d_table(vocab * d);
  for (size_t n = 0; n < tokens.size(); ++n) {
    for (int64_t c = 0; c < d; ++c) d_table[tokens[n] * d + c] += dy[n * d + c];
  }
  return d_table;
}

}  // namespace keel::reference
