#pragma once

// The forward pass of a sequence with few rows, as single tokens are generated: without padding to whole panels, keys and
// values are read where they lie, once for all query heads that share them.
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
  float *q, *scores, *out;    ///< [rows, width] with the scale and zeros behind, [rows, score_stride], [rows, width]
  int64_t score_stride;       ///< keys of a tile
  float *peak, *sum, *decay;  ///< [rows]
  float* score(int64_t r) const { return scores + r * score_stride; }
};

KEEL_INLINE void prefetch_row(const float* row, int64_t n) {
  for (int64_t d = 0; d < n; d += 16) __builtin_prefetch(row + d, 0, 3);
}

/// The sums of kWidth vectors, in their order.
KEEL_INLINE Vector sums_of(Vector (&x)[kWidth]) {
#pragma GCC unroll 4
  for (int half = kWidth / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      x[i] = interleave_low(x[i], x[i + half], Lanes{}) + interleave_high(x[i], x[i + half], Lanes{});
    }
  }
  return x[0];
}

KEEL_INLINE float sum_of(Vector x) {
  float sum = 0;
  for (int i = 0; i < kWidth; ++i) sum += x[i];
  return sum;
}

KEEL_INLINE float largest_of(Vector x, float largest) {
  for (int i = 0; i < kWidth; ++i) largest = x[i] < largest ? largest : x[i];
  return largest;
}

/// scores[r, j] = q[r] . k[j], kWidth keys side by side, -infinity where the row does not see the key and past the last.
template <int64_t kTile>
void few_scores(const FewRows& b, const FewKeys<kTile>& tile) {
  const int64_t whole = round_down(b.head_dim, kWidth);
  const int32_t reach = b.window > 0 ? static_cast<int32_t>(b.window) : INT32_MAX;
  for (int64_t first = 0; first < tile.count; first += kWidth) {
    const float* row[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t j = smaller(first + i, tile.count - 1);
      row[i] = tile.keys[j];
      prefetch_row(tile.values[j], b.head_dim);
    }
    const VectorInt key = lane_numbers(Lanes{}) + static_cast<int32_t>(tile.begin + first);
    const VectorInt is_there = key < static_cast<int32_t>(tile.begin + tile.count);
    for (int64_t r = 0; r < b.rows; ++r) {
      const float* q = b.q + r * b.width;
      Vector c[kWidth] = {};
      for (int64_t d = 0; d < whole; d += kWidth) {
        const Vector q_d = load(q + d);
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) c[i] += q_d * load_unaligned(row[i] + d);
      }
      if (whole < b.head_dim) {
        const Vector q_d = load(q + whole);
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) c[i] += q_d * load_first(row[i] + whole, b.head_dim - whole);
      }
      const VectorInt distance = b.token[r] - key;
      store_unaligned(b.score(r) + first,
                      is_there & (distance >= 0) & (distance < reach) ? sums_of(c) : broadcast(-__builtin_inff()));
    }
  }
}

/// scores = 2^(scores - peak), with the new peaks and sums.
inline void few_exponentials(const FewRows& b, int64_t count) {
  for (int64_t r = 0; r < b.rows; ++r) {
    float* scores = b.score(r);
    Vector peaks = load_unaligned(scores);
    for (int64_t j = kWidth; j < count; j += kWidth) peaks = at_least(load_unaligned(scores + j), peaks);
    const float peak = largest_of(peaks, b.peak[r]);
    b.decay[r] = exp2_vector(broadcast(b.peak[r] - peak))[0];
    b.peak[r] = peak;
    Vector sums{};
    for (int64_t j = 0; j < count; j += kWidth) {
      const Vector weights = exp2_vector(load_unaligned(scores + j) - broadcast(peak));
      store_unaligned(scores + j, weights);
      sums += weights;
    }
    b.sum[r] = b.sum[r] * b.decay[r] + sum_of(sums);
  }
}

/// vectors of columns, from d on, of kRows rows: out = decay out + sum_j scores[j] v[j], from 0 in the first tile.
template <int kRows, int vectors, int64_t kTile>
KEEL_INLINE void few_values_of(const FewRows& b, const FewKeys<kTile>& tile, bool is_first, int64_t r, int64_t d) {
  constexpr int kChains = kRows * vectors < 8 ? 2 : 1;  // enough sums to hide the latency of an addition
  const int64_t last = smaller(kWidth, b.head_dim - d - (vectors - 1) * kWidth);
  Vector c[kChains][kRows][vectors] = {};
  const auto add = [&](Vector(&sums)[kRows][vectors], int64_t j) __attribute__((always_inline)) {
    const float* values = tile.values[j] + d;
    Vector v[vectors];
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      v[i] = i + 1 < vectors || last == kWidth ? load_unaligned(values + i * kWidth)
                                               : load_first(values + i * kWidth, last);
    }
#pragma GCC unroll 4
    for (int k = 0; k < kRows; ++k) {
      const float weight = b.score(r + k)[j];
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) sums[k][i] += weight * v[i];
    }
  };
  int64_t j = 0;
  for (; j + kChains <= tile.count; j += kChains) {
#pragma GCC unroll 2
    for (int chain = 0; chain < kChains; ++chain) add(c[chain], j + chain);
  }
  if (j < tile.count) add(c[0], j);
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      float* out = b.out + (r + k) * b.width + d + i * kWidth;
      Vector sum = c[0][k][i];
      if constexpr (kChains > 1) sum += c[1][k][i];
      store(out, is_first ? sum : sum + load(out) * b.decay[r + k]);
    }
  }
}

template <int64_t kTile>
void few_values(const FewRows& b, const FewKeys<kTile>& tile, bool is_first) {
  int64_t d = 0;
  const auto columns = [&]<int vectors>() __attribute__((always_inline)) {
    int64_t r = 0;
    for (; r + kTileRows / 2 <= b.rows; r += kTileRows / 2) {
      few_values_of<kTileRows / 2, vectors>(b, tile, is_first, r, d);
    }
    for (; r < b.rows; ++r) few_values_of<1, vectors>(b, tile, is_first, r, d);
  };
  for (; d + 4 * kWidth <= b.width; d += 4 * kWidth) columns.template operator()<4>();
  for (; d < b.width; d += kWidth) columns.template operator()<1>();
}

}  // namespace
}  // namespace keel::KEEL_ISA
