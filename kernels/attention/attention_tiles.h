#pragma once

// Register tiles for attention. Included by attention_*_cpu.cpp only, which are compiled once for each instruction set:
// everything here has internal linkage.

#include <cstdint>

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

/// Transposes a square of kWidth rows of one vector each.
KEEL_INLINE void transpose(Vector (&x)[kWidth]) {
  VectorInt low, high;  // indices that interleave the low and the high halves of two vectors
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    low[i] = i / 2 + i % 2 * kWidth;
    high[i] = low[i] + kWidth / 2;
  }
#pragma GCC unroll 4
  for (int step = 1; step < kWidth; step *= 2) {
    Vector y[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth / 2; ++i) {
      y[2 * i] = __builtin_shuffle(x[i], x[i + kWidth / 2], low);
      y[2 * i + 1] = __builtin_shuffle(x[i], x[i + kWidth / 2], high);
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

/// to[0 .. round_up(n, kWidth)) = the n floats at `from`, then zeros.
KEEL_INLINE void copy_row(const float* from, int64_t n, float* to) {
  for (int64_t d = 0; d < n; d += kWidth) store(to + d, load_first(from + d, n - d));
}

/// to[d * kLanes + i] = factor * row(i)[d]  for i < rows <= kLanes, d < n; lanes beyond are 0.
/// row(i) gives a pointer to n floats.
template <class Row>
KEEL_INLINE void transpose_rows(Row row, int64_t rows, int64_t n, float factor, float* to) {
  for (int64_t lane = 0; lane < kLanes; lane += kWidth) {
    const float* from[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) from[i] = lane + i < rows ? row(lane + i) : nullptr;
    for (int64_t d = 0; d < n; d += kWidth) {
      Vector x[kWidth];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i) x[i] = from[i] == nullptr ? Vector{} : load_first(from[i] + d, n - d);
      transpose(x);
      const int64_t valid = smaller(kWidth, n - d);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i) {
        if (i < valid) store(to + (d + i) * kLanes + lane, x[i] * factor);
      }
    }
  }
}

}  // namespace
}  // namespace keel::KEEL_ISA
