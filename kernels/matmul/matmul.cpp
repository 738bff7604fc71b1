#include "keel/kernels/matmul/matmul.h"

#include <algorithm>
#include <string>
#include <vector>

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/matmul/matmul_onednn.h"

namespace keel {
namespace {

std::string extents(const char* name, const View<const float, 2>& x) {
  return std::string(name) + " [" + std::to_string(x.extent(0)) + ", " + std::to_string(x.extent(1)) + "]";
}

bool rows_fit(const View<const float, 2>& x) {
  return (x.extent(1) <= 1 || x.stride(1) == 1) && (x.extent(0) <= 1 || x.stride(0) >= x.extent(1));
}

/// The stride of the rows of a stored matrix, one value for all matrices that lie alike in memory.
int64_t row_stride(int64_t rows, int64_t columns, int64_t stride) {
  return rows <= 1 || stride == 0 ? columns : stride;
}

MatmulShape with_strides(MatmulShape s) {
  const bool ta = transposes_a(s.transpose), tb = transposes_b(s.transpose);
  s.a_stride = row_stride(ta ? s.k : s.m, ta ? s.m : s.k, s.a_stride);
  s.b_stride = row_stride(tb ? s.n : s.k, tb ? s.k : s.n, s.b_stride);
  s.c_stride = row_stride(s.m, s.n, s.c_stride);
  return s;
}

MatmulShape checked_shape(const View<const float, 2>& A, const View<const float, 2>& B, const View<const float, 2>& C,
                          Transpose transpose, bool accumulate) {
  const bool ta = transposes_a(transpose), tb = transposes_b(transpose);
  const auto where = [&] {
    return "matmul " + extents("A", A) + (ta ? "^T" : "") + " " + extents("B", B) + (tb ? "^T" : "") + " -> " +
           extents("C", C);
  };
  const int64_t m = A.extent(ta ? 1 : 0), k = A.extent(ta ? 0 : 1), n = B.extent(tb ? 0 : 1);
  if (B.extent(tb ? 1 : 0) != k || C.extent(0) != m || C.extent(1) != n) {
    throw Error(ErrorKind::shape, "the extents of a matrix product disagree", where());
  }
  if (!rows_fit(A) || !rows_fit(B) || !rows_fit(C)) {
    throw Error(ErrorKind::shape, "a matrix product needs rows that are contiguous and do not overlap", where());
  }
  return with_strides({m, n, k, transpose, accumulate, A.stride(0), B.stride(0), C.stride(0)});
}

void fill_zero(View<float, 2> C) {
  for (int64_t i = 0; i < C.extent(0); ++i) {
    std::fill_n(C.data() + i * C.stride(0), C.extent(1), 0.0F);
  }
}

/// What a decoder uses a product for.
const char* product_name(Transpose transpose) {
  if (transpose == Transpose::b) return "product";
  return transposes_a(transpose) ? "product, weight gradient" : "product, input gradient";
}

bool is_empty(const MatmulShape& s) {
  return s.m == 0 || s.n == 0 || s.k == 0;
}

}  // namespace

void matmul(Context& ctx, View<const float, 2> A, View<const float, 2> B, View<float, 2> C, Transpose transpose,
            bool accumulate) {
  const MatmulShape shape = checked_shape(A, B, C, transpose, accumulate);
  const OperationScope scope(
      ctx, product_name(transpose),
      {.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
       .bytes = bytes_of(A) + bytes_of(B) + bytes_of(C, accumulate ? 2 : 1)});
  if (!is_empty(shape)) {
    matmul_onednn(ctx, shape, A.data(), B.data(), C.data());
  } else if (!accumulate) {
    fill_zero(C);
  }
}

int64_t matmul_memory(Context& ctx) {
  return matmul_memory(ctx, {});
}

int64_t matmul_memory(Context& ctx, std::span<const MatmulShape> shapes) {
  std::vector<MatmulShape> products;
  for (const MatmulShape& shape : shapes) {
    if (!is_empty(shape)) products.push_back(with_strides(shape));
  }
  return matmul_onednn_memory(ctx, products);
}

}  // namespace keel
