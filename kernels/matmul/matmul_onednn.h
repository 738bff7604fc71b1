#pragma once

// matmul.h by oneDNN, for arguments that matmul.cpp has checked. Compiled once and not for every instruction set: the
// library makes its code for the processor that it runs on.

#include <cstdint>
#include <span>

#include "keel/kernels/matmul/matmul.h"

namespace keel {

/// On the calling thread, with what is cached in `worker`. No extent is 0, and strides are those of the matrices as
/// stored (columns, for a single row).
void matmul_onednn(Context& worker, const MatmulShape& shape, const float* a, const float* b, float* c);

/// Memory of the context for this many floats; what it holds in all.
float* matmul_buffer(Context&, int64_t floats);
int64_t matmul_buffer_floats(Context&);

/// Bytes that the contexts of all threads keep once all of `shapes` will have run in each; the shapes as above.
int64_t matmul_onednn_memory(Context&, std::span<const MatmulShape> shapes);

}  // namespace keel
