#include "keel/kernels/embedding/embedding_cpu.h"

#include <string.h>

#include "keel/kernels/common/parallel.h"

namespace keel::KEEL_ISA {
namespace {

/// Columns of a row of the table that belong to one thread together.
constexpr int64_t kBlock = 64;

}  // namespace

void embedding(const int32_t* tokens, int64_t count, const float* table, int64_t d, float* y, Threads threads) {
  for_ranges(threads, count, count * d, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      ::memcpy(y + n * d, table + tokens[n] * d, static_cast<size_t>(d) * sizeof(float));
    }
  });
}

// Each block of the table has one owner, which meets its tokens in order. Owners change from block to block of a row
// and from row to row, so that frequent tokens do not fall to one thread.
void embedding_backward(const int32_t* tokens, int64_t count, const float* dy, int64_t d, float* d_table,
                        Threads threads) {
  const int64_t blocks = (d + kBlock - 1) / kBlock;
  const int64_t owners = count * d < kParallelElements ? 1 : threads.count;
  for_parts(threads, owners, [&](int64_t owner, int) {
    for (int64_t n = 0; n < count; ++n) {
      const int64_t v = tokens[n];
      for (int64_t block = (owner + v) % owners; block < blocks; block += owners) {
        const int64_t begin = block * kBlock, end = begin + kBlock < d ? begin + kBlock : d;
        const float* from = dy + n * d;
        float* to = d_table + v * d;
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) to[c] += from[c];
      }
    }
  });
}

}  // namespace keel::KEEL_ISA
