#include "keel/kernels/bias/bias_cpu.h"

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_norm.h"

namespace keel::KEEL_ISA {

void add_bias(const float* b, View<float, 2> y, int threads) {
  const int64_t rows = y.extent(0), d = y.extent(1), stride = y.stride(0);
  float* y_data = y.data();
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * d >= kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    float* row = y_data + r * stride;
    for_columns(d, [&](auto at) { at.store(row, at.load(row) + at.load(b)); });
  }
}

void add_bias_backward(View<const float, 2> dy, float* db, View<float, 2> partial, int threads) {
  const int64_t rows = dy.extent(0), d = dy.extent(1), stride = dy.stride(0), chunks = partial.extent(0);
  const float* dy_data = dy.data();
  float* partial_data = partial.data();
  const int64_t partial_stride = partial.stride(0);
#pragma omp parallel num_threads(threads) if (rows * d >= kParallelElements)
  {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < chunks; ++k) {
      float* sums = partial_data + k * partial_stride;
      for_columns(d, [&](auto at) { at.store(sums, Vec{}); });
      const int64_t end = (k + 1) * kReductionRows < rows ? (k + 1) * kReductionRows : rows;
      for (int64_t r = k * kReductionRows; r < end; ++r) {
        const float* row = dy_data + r * stride;
        for_columns(d, [&](auto at) { at.store(sums, at.load(sums) + at.load(row)); });
      }
    }
#pragma omp for schedule(static)
    for (int64_t c = 0; c < d; c += kPartialBlock) {
      add_partial_sums(partial_data, chunks, partial_stride, c, c + kPartialBlock < d ? c + kPartialBlock : d, db);
    }
  }
}

}  // namespace keel::KEEL_ISA
