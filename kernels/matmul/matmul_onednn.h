#pragma once

// matmul.h by oneDNN, for arguments that matmul.cpp has checked. Compiled once and not for every instruction set: the
// library makes its code for the processor that it runs on.

#include <cstdint>
#include <span>

#include "keel/kernels/matmul/matmul.h"

namespace keel {

inline bool transposes_a(Transpose t) {
  return t == Transpose::a || t == Transpose::both;
}
inline bool transposes_b(Transpose t) {
  return t == Transpose::b || t == Transpose::both;
}

/// No extent is 0, and strides are those of the matrices as stored (columns, for a single row).
void matmul_onednn(Context&, const MatmulShape& shape, const float* a, const float* b, float* c);

/// See matmul_memory; the shapes as above.
int64_t matmul_onednn_memory(Context&, std::span<const MatmulShape> shapes);

}  // namespace keel
