#pragma once

// The forward pass of a block of few rows, as single tokens are generated: without padding to whole panels, and keys and
// values are read where they lie. Rows get the bits that they get in a large block: the same sums in the same order.
// Included by attention_forward_cpu.cpp only; internal linkage as attention_tiles.h.

#include "keel/kernels/attention/attention_cpu.h"
#include "keel/kernels/attention/attention_tiles.h"

namespace keel::KEEL_ISA {
namespace {

constexpr int64_t kFewRows = 8;

/// Keys of a tile and where their rows lie.
template <int64_t kTile>
struct FewKeys {
  int64_t begin, count;  ///< count > 0
  const float *keys[kTile], *values[kTile];
};

/// Rows of a block in scratch. Row r belongs to the token at position token[r] among the keys.
struct FewRows {
  int64_t rows, head_dim, width, window;
  const int32_t* token;
  float *q, *scores, *out;    ///< [rows, head_dim] with the scale, [rows, score_stride], [rows, width]
  int64_t score_stride;       ///< keys of a tile
  float *peak, *sum, *decay;  ///< [rows]
  float* score(int64_t r) const { return scores + r * score_stride; }
};

KEEL_INLINE void prefetch_row(const float* row, int64_t n) {
  for (int64_t d = 0; d < n; d += 16) __builtin_prefetch(row + d, 0, 3);
}

/// scores[r, j] = q[r] . k[j], kWidth keys side by side, -infinity where the row does not see the key.
template <int64_t kTile>
void few_scores(const FewRows& b, const FewKeys<kTile>& tile) {
  for (int64_t first = 0; first < tile.count; first += kWidth) {
    const float* row[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t j = smaller(first + i, tile.count - 1);
      row[i] = tile.keys[j];
      prefetch_row(tile.values[j], b.head_dim);
    }
    Vector c[kFewRows] = {};
    for (int64_t d = 0; d < b.head_dim; d += kWidth) {
      const int64_t columns = smaller(b.head_dim - d, kWidth);
      Vector x[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) x[i] = load_first(row[i] + d, columns);
      transpose(x);
      alignas(64) float columns_of[kWidth][kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(columns_of[i], x[i]);
      for (int64_t r = 0; r < b.rows; ++r) {
        Vector sum = c[r];
        for (int64_t i = 0; i < columns; ++i) sum += b.q[r * b.head_dim + d + i] * load(columns_of[i]);
        c[r] = sum;
      }
    }
    const VectorInt key = lane_numbers(Lanes{}) + static_cast<int32_t>(tile.begin + first);
    for (int64_t r = 0; r < b.rows; ++r) {
      const VectorInt distance = b.token[r] - key;
      const int32_t reach = b.window > 0 ? static_cast<int32_t>(b.window) : INT32_MAX;
      store_unaligned(b.score(r) + first, (distance >= 0) & (distance < reach) ? c[r] : broadcast(-__builtin_inff()));
    }
  }
}

/// scores = 2^(scores - peak), with the new peaks and sums.
inline void few_exponentials(const FewRows& b, int64_t count) {
  for (int64_t r = 0; r < b.rows; ++r) {
    float* scores = b.score(r);
    float peak = b.peak[r];
    for (int64_t j = 0; j < count; ++j) peak = scores[j] < peak ? peak : scores[j];
    b.decay[r] = exp2_vector(broadcast(b.peak[r] - peak))[0];
    b.peak[r] = peak;
    for (int64_t j = 0; j < count; j += kWidth) {
      store_unaligned(scores + j, exp2_vector(load_unaligned(scores + j) - broadcast(peak)));
    }
    float sum = b.sum[r] * b.decay[r];
    for (int64_t j = 0; j < count; ++j) sum += scores[j];
    b.sum[r] = sum;
  }
}

/// out = decay out + sum_j scores[j] v[j], from 0 in the first tile.
template <int64_t kTile>
void few_values(const FewRows& b, const FewKeys<kTile>& tile, bool is_first) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* scores = b.score(r);
    for_column_tiles(
        b.width, [&]<int vectors>(int64_t d) __attribute__((always_inline)) {
          float* out = b.out + r * b.width + d;
          Vector c[vectors];
#pragma GCC unroll 4
          for (int v = 0; v < vectors; ++v) c[v] = is_first ? Vector{} : load(out + v * kWidth) * b.decay[r];
          for (int64_t j = 0; j < tile.count; ++j) {
            const float* values = tile.values[j] + d;
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
              c[v] += scores[j] * load_first(values + v * kWidth, b.head_dim - d - v * kWidth);
            }
          }
#pragma GCC unroll 4
          for (int v = 0; v < vectors; ++v) store(out + v * kWidth, c[v]);
        });
  }
}

}  // namespace
}  // namespace keel::KEEL_ISA
