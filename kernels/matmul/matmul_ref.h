#pragma once

#include <cstdint>
#include <vector>

// Matrix products as plain loops, for any scalar (double, std::complex<double>). All matrices are dense.
namespace keel::reference {

/// Row-major [rows, columns].
template <class S>
struct Matrix {
  int64_t rows, columns;
  std::vector<S> values;

  const S& at(int64_t i, int64_t j) const { return values[i * columns + j]; }
};

template <class S>
Matrix<S> transposed(const Matrix<S>& a) {
  Matrix<S> t{a.columns, a.rows, {}};
  for (int64_t j = 0; j < a.columns; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) t.values.push_back(a.at(i, j));
  }
  return t;
}

/// A B
template <class S>
Matrix<S> matmul(const Matrix<S>& a, const Matrix<S>& b) {
  Matrix<S> c{a.rows, b.columns, {}};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      S sum = 0;
      for (int64_t l = 0; l < a.columns; ++l) sum += a.at(i, l) * b.at(l, j);
      c.values.push_back(sum);
    }
  }
  return c;
}

template <class S>
struct MatmulGradients {
  Matrix<S> dA, dB;
};

/// dA = dC B^T,  dB = A^T dC
template <class S>
MatmulGradients<S> matmul_backward(const Matrix<S>& dC, const Matrix<S>& a, const Matrix<S>& b) {
  return {matmul(dC, transposed(b)), matmul(transposed(a), dC)};
}

}  // namespace keel::reference
