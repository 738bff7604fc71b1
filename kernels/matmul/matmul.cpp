#include "keel/kernels/matmul/matmul.h"

#include <algorithm>
#include <string>
#include <vector>

#include "keel/base/error.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/parallel.h"
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

/// A product cut into parts of rows or columns of C, one thread each.
struct Split {
  int64_t parts = 1;
  bool by_columns = false;

  /// Row or column where part i begins, of `extent`: on a whole vector where it can.
  int64_t begin(int64_t extent, int64_t i) const {
    constexpr int64_t kVector = 16;
    return i == parts ? extent : extent * i / parts / kVector * kVector;
  }
};

/// As many parts as there are threads, where there is enough to do for each; rows of C, whose operand is read once
/// only, unless there are too few of them.
Split split_for(const MatmulShape& s, int threads) {
  constexpr double kFewestFlops = 4e5;  // some microseconds: what it takes to hand over a part
  constexpr int64_t kFewestRows = 32;
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const int64_t parts = std::clamp<int64_t>(static_cast<int64_t>(flops / kFewestFlops), 1, threads);
  if (s.m >= parts * kFewestRows) return {parts, false};
  if (s.n >= parts * kFewestRows) return {parts, true};
  const bool by_columns = s.n > s.m;
  return {std::max<int64_t>(1, std::max(s.m, s.n) / kFewestRows), by_columns};
}

MatmulShape part_of(MatmulShape shape, const Split& split, int64_t i) {
  int64_t& extent = split.by_columns ? shape.n : shape.m;
  extent = split.begin(extent, i + 1) - split.begin(extent, i);
  return shape;
}

void run_part(Context& worker, const MatmulShape& shape, const Split& split, int64_t i, const float* a, const float* b,
              float* c) {
  if (split.by_columns) {
    const int64_t column = split.begin(shape.n, i);
    b += transposes_b(shape.transpose) ? column * shape.b_stride : column;
    c += column;
  } else {
    const int64_t row = split.begin(shape.m, i);
    a += transposes_a(shape.transpose) ? row : row * shape.a_stride;
    c += row * shape.c_stride;
  }
  matmul_onednn(worker, part_of(shape, split, i), a, b, c);
}

}  // namespace

void matmul(Context& ctx, View<const float, 2> A, View<const float, 2> B, View<float, 2> C, Transpose transpose,
            bool accumulate) {
  const MatmulShape shape = checked_shape(A, B, C, transpose, accumulate);
  const OperationScope scope(
      ctx, product_name(transpose),
      {.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
       .bytes = bytes_of(A) + bytes_of(B) + bytes_of(C, accumulate ? 2 : 1)});
  if (is_empty(shape)) {
    if (!accumulate) fill_zero(C);
    return;
  }
  const Split split = split_for(shape, ctx.threads());
  for_parts(ctx.team(), split.parts, [&](int64_t part, int thread) {
    run_part(ctx.worker(thread), shape, split, part, A.data(), B.data(), C.data());
  });
}

int64_t matmul_memory(Context& ctx) {
  return matmul_memory(ctx, {});
}

int64_t matmul_memory(Context& ctx, std::span<const MatmulShape> shapes, std::span<const MatmulShape> of_workers) {
  std::vector<MatmulShape> products;
  for (const MatmulShape& given : shapes) {
    if (is_empty(given)) continue;
    const MatmulShape shape = with_strides(given);
    const Split split = split_for(shape, ctx.threads());
    for (int64_t i = 0; i < split.parts; ++i) products.push_back(part_of(shape, split, i));
  }
  for (const MatmulShape& shape : of_workers) {
    if (!is_empty(shape)) products.push_back(with_strides(shape));
  }
  return matmul_onednn_memory(ctx.worker(0), products, ctx.threads());
}

}  // namespace keel
