#pragma once

// Register tiles for attention. Included by attention_*_cpu.cpp only, which are compiled once for each instruction set:
// everything here has internal linkage.

#include <cstdint>
#include <utility>

#include "keel/kernels/attention/attention_cpu.h"

namespace keel::KEEL_ISA {
namespace {

#define KEEL_INLINE [[gnu::always_inline]] inline

// One vector holds kWidth floats; a register tile is kTileRows rows of kTileVectors vectors (accumulators, operands and
// a broadcast fit the registers, and there are enough accumulators to hide the latency of a fused multiply-add).
#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kTileRows = 8;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kTileRows = 4;
#else
constexpr int kWidth = 4;
constexpr int kTileRows = 4;
#endif
constexpr int kTileVectors = 2;
constexpr int kLanes = kTileVectors * kWidth;  ///< columns of a register tile

using Vector [[gnu::vector_size(kWidth * 4), gnu::may_alias]] = float;
using VectorInt [[gnu::vector_size(kWidth * 4), gnu::may_alias]] = int32_t;
using Unaligned [[gnu::vector_size(kWidth * 4), gnu::may_alias, gnu::aligned(4)]] = float;

KEEL_INLINE Vector load(const float* p) {
  return *reinterpret_cast<const Vector*>(p);
}
KEEL_INLINE VectorInt load(const int32_t* p) {
  return *reinterpret_cast<const VectorInt*>(p);
}
KEEL_INLINE void store(float* p, Vector x) {
  *reinterpret_cast<Vector*>(p) = x;
}
KEEL_INLINE Vector load_unaligned(const float* p) {
  return *reinterpret_cast<const Unaligned*>(p);
}
KEEL_INLINE void store_unaligned(float* p, Vector x) {
  *reinterpret_cast<Unaligned*>(p) = x;
}
KEEL_INLINE Vector broadcast(float x) {
  return x - Vector{};
}
KEEL_INLINE VectorInt broadcast(int32_t x) {
  return x - VectorInt{};
}

// Selections that pass a NaN in x.
KEEL_INLINE Vector at_least(Vector x, Vector bound) {
  return x < bound ? bound : x;
}
KEEL_INLINE Vector at_most(Vector x, Vector bound) {
  return bound < x ? bound : x;
}

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr int64_t round_down(int64_t n, int64_t multiple) {
  return n / multiple * multiple;
}
constexpr int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
constexpr int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

constexpr float kLog2e = 0x1.715476p+0F;
constexpr float kLn2 = 0x1.62e430p-1F;

/// 2^x for x <= 0 (up to 127), within 2 ulp of results above 2^-126; exactly 0 from -127 down, NaN for NaN.
/// Scores are kept in base 2 (log2 e goes into the scale), which saves a third of what vector_exp takes.
KEEL_INLINE Vector exp2_vector(Vector x) {
  x = at_least(x, broadcast(-127.0F));
  const Vector shift = broadcast(0x1.8p23F);  // adding it leaves the nearest integer in the low bits
  const Vector shifted = x + shift;
  const Vector r = x - (shifted - shift);
  // 2^r = 1 + r q(r), minimax on |r| <= 1/2 with relative error 2.6e-9.
  Vector q = broadcast(0x1.470b4ap-13F);
  q = q * r + 0x1.5f7276p-10F;
  q = q * r + 0x1.3b270ep-7F;
  q = q * r + 0x1.c6ae72p-5F;
  q = q * r + 0x1.ebfbe2p-3F;
  q = q * r + 0x1.62e432p-1F;
  q = q * r + 1.0F;
  return reinterpret_cast<Vector>(reinterpret_cast<VectorInt>(q) + (reinterpret_cast<VectorInt>(shifted) << 23));
}

/// log2(x) for normal x > 0, NaN for NaN.
KEEL_INLINE Vector log2_vector(Vector x) {
  const VectorInt bits = reinterpret_cast<VectorInt>(x);
  const VectorInt exponent = (bits - 0x3f3504f3) >> 23;  // x = m 2^exponent, m in [sqrt(1/2), sqrt(2))
  const Vector m = reinterpret_cast<Vector>(bits - (exponent << 23));
  const Vector s = (m - 1.0F) / (m + 1.0F);
  const Vector s2 = s * s;
  // log2(m) = 2 / ln 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172: the next term is below 5e-10 of the sum.
  Vector series = broadcast(2.0F / 9 * kLog2e);
  series = series * s2 + 2.0F / 7 * kLog2e;
  series = series * s2 + 2.0F / 5 * kLog2e;
  series = series * s2 + 2.0F / 3 * kLog2e;
  series = series * s2 + 2.0F * kLog2e;
  return __builtin_convertvector(exponent, Vector) + series * s + (x - x);
}

template <int Vectors>
KEEL_INLINE void clear(Vector (&c)[kTileRows][Vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < Vectors; ++j) c[i][j] = Vector{};
  }
}

/// c[i, j] += sum over l < n of a[i, l] b[l, j];   rows of a lie a_stride apart, rows of b (aligned) b_stride.
template <int Vectors>
KEEL_INLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n,
                          Vector (&c)[kTileRows][Vectors]) {
  for (int64_t l = 0; l < n; ++l) {
    Vector row[Vectors];
#pragma GCC unroll 16
    for (int j = 0; j < Vectors; ++j) row[j] = load(b + l * b_stride + j * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const Vector x = broadcast(a[i * a_stride + l]);
#pragma GCC unroll 16
      for (int j = 0; j < Vectors; ++j) c[i][j] += x * row[j];
    }
  }
}

/// c[i, j] += sum over l < n of a[l, i] b[l, j];   as multiply, with a transposed.
template <int Vectors>
KEEL_INLINE void multiply_transposed(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n,
                                     Vector (&c)[kTileRows][Vectors]) {
  for (int64_t l = 0; l < n; ++l) {
    Vector row[Vectors];
#pragma GCC unroll 16
    for (int j = 0; j < Vectors; ++j) row[j] = load(b + l * b_stride + j * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const Vector x = broadcast(a[l * a_stride + i]);
#pragma GCC unroll 16
      for (int j = 0; j < Vectors; ++j) c[i][j] += x * row[j];
    }
  }
}

/// Calls body<vectors>(first column) for the register tiles that cover `columns` (a multiple of kWidth) columns.
template <class Body>
KEEL_INLINE void for_column_tiles(int64_t columns, Body body) {
  int64_t d = 0;
  for (; d + kLanes <= columns; d += kLanes) body.template operator()<kTileVectors>(d);
  for (; d < columns; d += kWidth) body.template operator()<1>(d);
}

// Shuffles have constant indices made from 0 ... kWidth - 1: GCC builds index vectors that are filled in a loop at run
// time.
using Lanes = std::make_integer_sequence<int, kWidth>;

template <int... lane>
KEEL_INLINE VectorInt lane_numbers(std::integer_sequence<int, lane...>) {
  return VectorInt{lane...};
}

template <int... lane>
KEEL_INLINE Vector interleave_low(Vector a, Vector b, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * kWidth)...);
}

template <int... lane>
KEEL_INLINE Vector interleave_high(Vector a, Vector b, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * kWidth + kWidth / 2)...);
}

template <int distance, int... lane>
KEEL_INLINE Vector rotate(Vector x, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(x, x, ((lane + distance) % kWidth)...);
}

/// The sum of the lanes of x, by halves.
template <int half = kWidth / 2>
KEEL_INLINE float sum_lanes(Vector x) {
  x += rotate<half>(x, Lanes{});
  if constexpr (half > 1)
    return sum_lanes<half / 2>(x);
  else
    return x[0];
}

/// Transposes a square of kWidth rows of one vector each.
KEEL_INLINE void transpose(Vector (&x)[kWidth]) {
#pragma GCC unroll 4
  for (int step = 1; step < kWidth; step *= 2) {
    Vector y[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth / 2; ++i) {
      y[2 * i] = interleave_low(x[i], x[i + kWidth / 2], Lanes{});
      y[2 * i + 1] = interleave_high(x[i], x[i + kWidth / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) x[i] = y[i];
  }
}

/// The first n of kWidth floats at p, 0 beyond.
KEEL_INLINE Vector load_first(const float* p, int64_t n) {
  if (n >= kWidth) return load_unaligned(p);
  alignas(64) float x[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return load(x);
}

KEEL_INLINE void store_first(float* p, int64_t n, Vector x) {
  if (n >= kWidth) return store_unaligned(p, x);
  alignas(64) float y[kWidth];
  store(y, x);
  for (int64_t i = 0; i < n; ++i) p[i] = y[i];
}

/// Calls body(row, d, lanes) for the vectors [d, d + lanes) that cover rows of n floats. A column of vectors at a time:
/// one long loop, and strides that the hardware prefetches.
template <class Body>
KEEL_INLINE void for_each_vector(int64_t rows, int64_t n, Body body) {
  int64_t d = 0;
  for (; d + kWidth <= n; d += kWidth) {
    for (int64_t r = 0; r < rows; ++r) body(r, d, std::integral_constant<int64_t, kWidth>{});
  }
  if (d == n) return;
  for (int64_t r = 0; r < rows; ++r) body(r, d, n - d);
}

/// Copies `rows` rows of n floats, and zeros up to whole vectors (of `to`, aligned).
KEEL_INLINE void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t n, float* to,
                           int64_t to_stride) {
  for_each_vector(
      rows, n, [&](int64_t r, int64_t d, int64_t lanes) __attribute__((always_inline)) {
        store(to + r * to_stride + d, load_first(from + r * from_stride + d, lanes));
      });
}

struct Range {
  int64_t begin, end;

  /// Part i of `parts` nearly equal ones.
  Range part(int64_t i, int64_t parts) const {
    return {begin + (end - begin) * i / parts, begin + (end - begin) * (i + 1) / parts};
  }
};

/// Asks for rows n of x, heads [head, head + heads), ahead of their use: they lie too far apart for the hardware to
/// guess.
template <class T>
KEEL_INLINE void prefetch(const HeadRows<T>& x, Range n, int64_t head, int64_t heads, int64_t head_dim) {
  for (int64_t i = n.begin; i < n.end; ++i) {
    for (int64_t h = head; h < head + heads; ++h) {
      const T* row = x(i, h);
      for (int64_t d = 0; d < head_dim; d += 16) __builtin_prefetch(row + d, 0, 2);
    }
  }
}

KEEL_INLINE void transpose_columns(const float* const (&from)[kWidth], int64_t first, int64_t columns, float factor,
                                   float* to) {
  Vector x[kWidth];
  if (columns >= kWidth) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) x[i] = load_unaligned(from[i] + first);
    transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) store(to + (first + i) * kLanes, x[i] * factor);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) x[i] = load_first(from[i] + first, columns);
    transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      if (i < columns) store(to + (first + i) * kLanes, x[i] * factor);
    }
  }
}

/// to[d * kLanes + i] = factor * row(i)[d]  for i < kLanes, d < n, where row(i) points to n floats; from `rows` on, the
/// last row is repeated.
template <class Row>
KEEL_INLINE void transpose_rows(Row row, int64_t rows, int64_t n, float factor, float* to) {
  for (int64_t lane = 0; lane < kLanes; lane += kWidth) {
    const float* from[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) from[i] = row(smaller(lane + i, rows - 1));
    for (int64_t d = 0; d < n; d += kWidth) transpose_columns(from, d, n - d, factor, to + lane);
  }
}

}  // namespace
}  // namespace keel::KEEL_ISA
