#include "keel/kernels/linear/linear.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/shape_check.h"
#include "keel/kernels/linear/linear_cpu.h"
#include "keel/kernels/linear/linear_cuda.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/matmul/matmul_onednn.h"

namespace keel {
namespace {

/// Up to this many rows a pass over the weights takes as long as reading them.
constexpr int64_t kFewRows = 12;
static_assert(kFewRows == kCudaLinearRows);

void check(const AnyView<const void, 2>& X, const WeightMatrix& W, const AnyView<void, 2>& Y,
           const View<const float, 1>& bias) {
  constexpr const char* kName = "linear";
  const int64_t N = X.extent(0);
  W.check(kName, W.rows, W.columns);
  check_shape(kName, "X", X, {N, W.columns});
  check_shape(kName, "Y", Y, {N, W.rows});
  if (bias) check_dense(kName, "bias", bias, {W.rows});
  if (Y.type() == ElementType::bf16) check_type(kName, "X", X, Y.type());
  if (X.type() == ElementType::bf16 && W.type != WeightType::bf16) {
    throw Error(ErrorKind::shape, "X is bf16, W is not", kName);
  }
  if (N > 1 && Y.stride(0) < W.rows) {
    throw Error(ErrorKind::shape, "a matrix product needs rows that do not overlap", kName);
  }
}

/// Parts of the rows of W for threads to share: as much to read for each as takes some microseconds.
int64_t parts_of(const WeightMatrix& W, int threads) {
  constexpr int64_t kBytes = 32 << 10;
  if (threads == 1) return 1;
  return std::clamp<int64_t>(W.bytes() / kBytes, 1, std::min<int64_t>(4 * threads, std::max<int64_t>(1, W.rows)));
}

void few_rows(Context& ctx, const View<const float, 2>& X, const WeightMatrix& W, const View<float, 2>& Y) {
  const int64_t parts = parts_of(W, ctx.threads());
  for_parts(ctx.team(), parts, [&](int64_t part, int) {
    const int64_t begin = W.rows * part / parts, end = W.rows * (part + 1) / parts;
    KEEL_CALL_ISA(ctx.isa(), linear_rows({.x = X.data(),
                                          .N = X.extent(0),
                                          .x_stride = X.stride(0),
                                          .W = W.slice(begin, end),
                                          .y = Y.data() + begin,
                                          .y_stride = Y.stride(0)}));
  });
}

/// What is added to the results of rows of W; null as the whole is.
View<const float, 1> of_rows(const View<const float, 1>& bias, int64_t begin, int64_t end) {
  return bias ? bias.slice(begin, end) : bias;
}

void widen_block(Context& worker, const WeightMatrix& part, float* wide) {
  const View<float, 2> to(wide, {part.rows, part.columns});
  const OperationScope scope(worker, "cast", {.flops = 0, .bytes = static_cast<double>(part.bytes()) + bytes_of(to)});
  KEEL_CALL_ISA(worker.isa(), widen_weights(part, wide, part.columns));
}

/// Each thread widens blocks of rows of W into its cache and multiplies by them.
void widened_blocks(Context& ctx, const View<const float, 2>& X, const WeightMatrix& W, const View<float, 2>& Y,
                    const View<const float, 1>& bias) {
  constexpr int64_t kFloats = 512 << 10, kFewest = 64;
  const int64_t threads = ctx.threads(), rows = std::max(kFewest, kFloats / std::max<int64_t>(1, W.columns));
  const int64_t wanted = (W.rows + rows - 1) / rows, blocks = (wanted + threads - 1) / threads * threads;
  for_parts(ctx.team(), blocks, [&](int64_t block, int thread) {
    const WeightMatrix part = W.slice(W.rows * block / blocks, W.rows * (block + 1) / blocks);
    const int64_t first = W.rows * block / blocks;
    Context& worker = ctx.worker(thread);
    float* wide = matmul_buffer(worker, rows * W.columns);
    widen_block(worker, part, wide);
    matmul(worker, X, View<const float, 2>(wide, {part.rows, W.columns}), Y.columns(first, first + part.rows),
           Transpose::b, false, of_rows(bias, first, first + part.rows));
  });
}

/// Rows of W that a device widens at a time: enough to fill it and few enough for its cache.
int64_t widened_rows_on_device(int64_t rows, int64_t columns) {
  constexpr int64_t kFloats = 8 << 20, kFewest = 256;
  return std::min(rows, std::max(kFewest, kFloats / std::max<int64_t>(1, columns)));
}

void widened_blocks_on_device(Context& ctx, const View<const float, 2>& X, const WeightMatrix& W,
                              const View<float, 2>& Y, const View<const float, 1>& bias) {
  const int64_t rows = widened_rows_on_device(W.rows, W.columns);
  float* wide = cuda::widened_weights(ctx.queue(), rows * W.columns);
  for (int64_t begin = 0; begin < W.rows; begin += rows) {
    const int64_t end = std::min(W.rows, begin + rows);
    const WeightMatrix part = W.slice(begin, end);
    const View<float, 2> widened(wide, {part.rows, part.columns});
    {
      const OperationScope scope(ctx, "cast",
                                 {.flops = 0, .bytes = static_cast<double>(part.bytes()) + bytes_of(widened)});
      cuda::widen_rows(ctx.queue(), part, nullptr, widened);
    }
    matmul(ctx, X, widened, Y.columns(begin, end), Transpose::b, false, of_rows(bias, begin, end));
  }
}

}  // namespace

void linear(Context& ctx, AnyView<const void, 2> X, const WeightMatrix& W, AnyView<void, 2> Y, int64_t batch_rows,
            View<const float, 1> bias) {
  check(X, W, Y, bias);
  const int64_t N = X.extent(0);
  const bool is_few = std::max(N, batch_rows) <= kFewRows;
  const bool is_on_gpu = ctx.device() == Device::cuda;
  const bool is_alike = X.type() == ElementType::bf16 || W.is_fp32();
  if (!is_few && is_alike) return matmul(ctx, X, W.numbers(), Y, Transpose::b, false, bias);
  if (N == 0 || W.rows == 0) return;
  if (!is_few && is_on_gpu) return widened_blocks_on_device(ctx, X.as<float>(), W, Y.as<float>(), bias);
  if (!is_few) return widened_blocks(ctx, X.as<float>(), W, Y.as<float>(), bias);
  const OperationScope scope(ctx, "product",
                             {.flops = 2.0 * static_cast<double>(N) * static_cast<double>(W.rows * W.columns),
                              .bytes = bytes_of(X) + bytes_of(Y) + static_cast<double>(W.bytes())});
  if (is_on_gpu) {
    cuda::linear_rows(ctx.queue(), {X, W, Y});
  } else {
    few_rows(ctx, floats_of("linear", "X", X), W, floats_of("linear", "Y", Y));
  }
  if (bias) add_bias(ctx, bias, Y);
}

void expect_linear(OperationMemory& memory, WeightType W, ElementType X, int64_t out, int64_t in, int64_t batch_rows) {
  if (batch_rows <= kFewRows) return;
  expect_matmul(memory);
  if (W == WeightType::fp32 || X == ElementType::bf16) return;
  memory.expect(OperationMemory::widened_weights,
                widened_rows_on_device(out, in) * in * static_cast<int64_t>(sizeof(float)));
}

void widen_rows(Context& ctx, View<const int32_t, 1> rows, const WeightMatrix& W, AnyView<void, 2> Y) {
  constexpr const char* kName = "widen_rows";
  const int64_t N = rows.extent(0);
  W.check(kName, W.rows, W.columns);
  check_dense(kName, "rows", rows, {N});
  check_shape(kName, "Y", Y, {N, W.columns});
  if (Y.type() == ElementType::bf16 && W.type != WeightType::bf16) {
    throw Error(ErrorKind::shape, "Y is bf16, W is not", kName);
  }
  const OperationScope scope(ctx, "embedding", {.flops = 0, .bytes = 2 * bytes_of(Y)});
  if (ctx.device() == Device::cuda) return cuda::widen_rows(ctx.queue(), W, rows.data(), Y);
  const View<float, 2> floats = floats_of(kName, "Y", Y);
  for_ranges(ctx.team(), N, N * W.columns, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = rows(n);
      KEEL_CALL_ISA(ctx.isa(), widen_weights(W.slice(row, row + 1), floats.data() + n * Y.stride(0), Y.stride(0)));
    }
  });
}

}  // namespace keel
