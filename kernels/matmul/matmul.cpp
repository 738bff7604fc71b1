#include "keel/kernels/matmul/matmul.h"

#include <algorithm>
#include <string>
#include <vector>

#include "keel/base/error.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/matmul/matmul_cuda.h"
#include "keel/kernels/matmul/matmul_onednn.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

std::string extents(const char* name, const AnyView<const void, 2>& x) {
  return std::string(name) + " [" + std::to_string(x.extent(0)) + ", " + std::to_string(x.extent(1)) + "]";
}

bool rows_fit(const AnyView<const void, 2>& x) {
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

MatmulShape checked_shape(const AnyView<const void, 2>& A, const AnyView<const void, 2>& B,
                          const AnyView<const void, 2>& C, Transpose transpose, bool accumulate) {
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
  check_type("matmul", "B", B, A.type());
  if (C.type() == ElementType::bf16) check_type("matmul", "A", A, C.type());
  return with_strides({m, n, k, transpose, accumulate, A.stride(0), B.stride(0), C.stride(0)});
}

void check_bias(const View<const float, 1>& bias, const MatmulShape& shape) {
  check_dense("matmul", "bias", bias, {shape.n});
  if (shape.accumulate) throw Error(ErrorKind::shape, "a bias is not accumulated", "matmul");
}

void fill_zero(Context& ctx, AnyView<void, 2> C) {
  const bool is_dense = C.is_dense();  // zeros are zeros in any type
  for (int64_t i = 0; i < (is_dense ? 1 : C.extent(0)); ++i) {
    const AnyView<void, 2> rows = is_dense ? C : C.slice(i, i + 1);
    zero(ctx, View<char, 1>(static_cast<char*>(rows.data()), {rows.size() * element_bytes(rows.type())}));
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

/// A product cut into parts, one thread each: of the rows or columns of C, or of what is summed over.
struct Split {
  enum Axis { rows, columns, depth };
  int64_t parts = 1;
  Axis axis = rows;

  /// Where part i of `extent` begins: on a whole vector where it can.
  int64_t begin(int64_t extent, int64_t i) const {
    constexpr int64_t kVector = 16;
    return i == parts ? extent : extent * i / parts / kVector * kVector;
  }
};

/// As many parts as there are threads, where there is enough to do for each. Rows of C, whose operand is read once only,
/// unless there are too few of them. The depth where that is long and C small: then every row of both operands is read
/// by one thread only.
Split split_for(const MatmulShape& s, int threads) {
  constexpr double kFewestFlops = 4e5;  // some microseconds: what it takes to hand over a part
  constexpr int64_t kFewest = 32;
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const int64_t parts = std::clamp<int64_t>(static_cast<int64_t>(flops / kFewestFlops), 1, threads);
  const int64_t read = s.k * (s.m + s.n), written = s.m * s.n;
  if (transposes_a(s.transpose) && s.k >= parts * kFewest && 2 * parts * written < read) return {parts, Split::depth};
  if (s.m >= parts * kFewest) return {parts, Split::rows};
  if (s.n >= parts * kFewest) return {parts, Split::columns};
  return {std::max<int64_t>(1, std::max(s.m, s.n) / kFewest), s.n > s.m ? Split::columns : Split::rows};
}

/// Parts of the depth but the first leave their sums, dense, in a buffer.
bool goes_to_buffer(const Split& split, int64_t i) {
  return split.axis == Split::depth && i > 0;
}

MatmulShape part_of(MatmulShape shape, const Split& split, int64_t i) {
  int64_t& extent = split.axis == Split::rows ? shape.m : (split.axis == Split::columns ? shape.n : shape.k);
  extent = split.begin(extent, i + 1) - split.begin(extent, i);
  if (goes_to_buffer(split, i)) {
    shape.c_stride = shape.n;
    shape.accumulate = false;
  }
  return shape;
}

int64_t buffer_floats(const MatmulShape& shape, const Split& split) {
  return split.axis == Split::depth ? (split.parts - 1) * shape.m * shape.n : 0;
}

void run_part(Context& worker, const MatmulShape& shape, const Split& split, int64_t i, const float* a, const float* b,
              float* c, float* buffer) {
  const bool ta = transposes_a(shape.transpose), tb = transposes_b(shape.transpose);
  if (split.axis == Split::rows) {
    const int64_t row = split.begin(shape.m, i);
    a += ta ? row : row * shape.a_stride;
    c += row * shape.c_stride;
  } else if (split.axis == Split::columns) {
    const int64_t column = split.begin(shape.n, i);
    b += tb ? column * shape.b_stride : column;
    c += column;
  } else {
    const int64_t first = split.begin(shape.k, i);
    a += ta ? first * shape.a_stride : first;
    b += tb ? first : first * shape.b_stride;
  }
  if (goes_to_buffer(split, i)) c = buffer + (i - 1) * shape.m * shape.n;
  matmul_onednn(worker, part_of(shape, split, i), a, b, c);
}

/// to = (from[0] or, with accumulate, to + from[0]) + from[stride] + ..
void sum_row(const float* from, int64_t parts, int64_t stride, int64_t n, float* to, bool accumulate) {
  constexpr int64_t kColumns = 256;  // stay in registers and first-level cache
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const int64_t end = std::min(n, begin + kColumns);
    if (!accumulate) std::copy(from + begin, from + end, to + begin);
    for (int64_t part = accumulate ? 0 : 1; part < parts; ++part) {
      const float* terms = from + part * stride;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] += terms[i];
    }
  }
}

}  // namespace

void matmul(Context& ctx, AnyView<const void, 2> A, AnyView<const void, 2> B, AnyView<void, 2> C, Transpose transpose,
            bool accumulate, View<const float, 1> bias) {
  const MatmulShape shape = checked_shape(A, B, C, transpose, accumulate);
  if (bias) check_bias(bias, shape);
  const OperationScope scope(
      ctx, product_name(transpose),
      {.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
       .bytes = bytes_of(A) + bytes_of(B) + bytes_of(C, accumulate ? 2 : 1)});
  if (is_empty(shape)) {
    if (!accumulate) fill_zero(ctx, C);
    if (bias) add_bias(ctx, bias, C);
    return;
  }
  if (ctx.device() == Device::cuda) {
    const CudaProduct product{shape, A.type(), C.type(), static_cast<bool>(bias)};
    return cuda::matmul(ctx.queue(), product, A.data(), B.data(), C.data(), bias.data());
  }
  const auto a = floats_of("matmul", "A", A), b = floats_of("matmul", "B", B);
  const View<float, 2> c = floats_of("matmul", "C", C);
  const Split split = split_for(shape, ctx.threads());
  float* buffer = matmul_buffer(ctx, buffer_floats(shape, split));
  for_parts(ctx.team(), split.parts, [&](int64_t part, int thread) {
    run_part(ctx.worker(thread), shape, split, part, a.data(), b.data(), c.data(), buffer);
  });
  if (split.axis == Split::depth && split.parts > 1) {
    sum_products(ctx, View<const float, 3>(buffer, {split.parts - 1, shape.m, shape.n}), c, true);
  }
  if (bias) add_bias(ctx, bias, C);
}

void sum_products(Context& ctx, View<const float, 3> parts, View<float, 2> C, bool accumulate) {
  const int64_t P = parts.extent(0), m = C.extent(0), n = C.extent(1);
  check_dense("sum_products", "parts", parts, {P, m, n});
  check_shape("sum_products", "C", C, {m, n});
  if (P < 1) throw Error(ErrorKind::shape, "no parts", "sum_products");
  const OperationScope scope(
      ctx, "sum_products",
      {.flops = static_cast<double>(parts.size()), .bytes = bytes_of(parts) + bytes_of(C, accumulate ? 2 : 1)});
  if (ctx.device() == Device::cuda) {
    return cuda::sum_products(ctx.queue(), parts.data(), P, m, n, C.data(), C.stride(0), accumulate);
  }
  for_ranges(ctx.team(), m, parts.size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      sum_row(parts.data() + row * n, P, m * n, n, C.data() + row * C.stride(0), accumulate);
    }
  });
}

void expect_matmul(OperationMemory& memory) {
  memory.expect(OperationMemory::products, kCudaProductsBytes);
}

void expect_bias(OperationMemory& memory, ElementType C, int64_t n) {
  if (C == ElementType::bf16) memory.expect(OperationMemory::rounded_bias, n * element_bytes(C));
}

int64_t matmul_memory(Context& ctx) {
  return matmul_memory(ctx, {});
}

int64_t matmul_memory(Context& ctx, std::span<const MatmulShape> shapes, std::span<const MatmulShape> of_workers) {
  if (ctx.device() == Device::cuda) {
    return cuda::matmul_memory(ctx.queue(), !std::ranges::all_of(shapes, is_empty));
  }
  std::vector<MatmulShape> products;
  int64_t buffer = matmul_buffer_floats(ctx);
  for (const MatmulShape& given : shapes) {
    if (is_empty(given)) continue;
    const MatmulShape shape = with_strides(given);
    const Split split = split_for(shape, ctx.threads());
    buffer = std::max(buffer, buffer_floats(shape, split));
    for (int64_t i = 0; i < split.parts; ++i) products.push_back(part_of(shape, split, i));
  }
  for (const MatmulShape& shape : of_workers) {
    if (!is_empty(shape)) products.push_back(with_strides(shape));
  }
  return matmul_onednn_memory(ctx, products) + buffer * static_cast<int64_t>(sizeof(float));
}

}  // namespace keel
