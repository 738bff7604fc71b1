#pragma once

#include <cstdint>

#include "keel/kernels/common/bf16.h"

/// One register of floats of the instruction set that the including file is compiled for, and loops over the columns of
/// a row in steps of it. Internal to kernels/*/*_cpu.cpp: everything has internal linkage.
namespace keel::KEEL_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = uint32_t __attribute__((vector_size(sizeof(Vec))));
using SignedWords = int32_t __attribute__((vector_size(sizeof(Vec))));
using Halves = uint16_t __attribute__((vector_size(sizeof(Vec) / 2)));

/// Stores past the caches where the instruction set can and p is aligned to a register: for what is not read again soon.
[[gnu::always_inline]] inline void store_past_caches(float* p, Vec v) {
#if defined(__AVX512F__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) return __builtin_ia32_movntps512(p, v);
#elif defined(__AVX__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) return __builtin_ia32_movntps256(p, v);
#elif defined(__SSE__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) return __builtin_ia32_movntps(p, v);
#endif
  __builtin_memcpy(p, &v, sizeof v);
}

[[gnu::always_inline]] inline void store_past_caches(Bf16* p, Halves v) {
#if defined(__AVX512F__)
  using Register = long long __attribute__((vector_size(32)));
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) {
    return __builtin_ia32_movntdq256(reinterpret_cast<Register*>(p), reinterpret_cast<Register>(v));
  }
#elif defined(__AVX__)
  using Register = long long __attribute__((vector_size(16)));
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) {
    return __builtin_ia32_movntdq(reinterpret_cast<Register*>(p), reinterpret_cast<Register>(v));
  }
#elif defined(__SSE2__) && defined(__x86_64__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) {
    return __builtin_ia32_movnti64(reinterpret_cast<long long*>(p), reinterpret_cast<long long>(v));
  }
#endif
  __builtin_memcpy(p, &v, sizeof v);
}

/// To the nearest, of two equally near ones the even one; beyond the largest: infinity; a NaN stays one.
[[gnu::always_inline]] inline Halves narrow(Vec v) {
  const Words w = reinterpret_cast<Words>(v);
  const Words is_nan = reinterpret_cast<Words>(reinterpret_cast<SignedWords>(w & 0x7FFFFFFFU) > 0x7F800000);
  const Words quiet = w | 0x400000U, rounded = w + 0x7FFFU + ((w >> 16) & 1U);
  return __builtin_convertvector(((is_nan & quiet) | (~is_nan & rounded)) >> 16, Halves);
}
[[gnu::always_inline]] inline Vec widen(Halves v) {
  return reinterpret_cast<Vec>(__builtin_convertvector(v, Words) << 16);
}

/// Orders stores past the caches before what other threads are told afterwards.
inline void finish_stores_past_caches() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

inline float sum4(float __attribute__((vector_size(16))) v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}

/// Sum of the lanes, pairwise.
[[gnu::always_inline]] inline float sum(Vec v) {
#if defined(__AVX512F__)
  const auto v8 = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return sum4(__builtin_shufflevector(v8, v8, 0, 1, 2, 3) + __builtin_shufflevector(v8, v8, 4, 5, 6, 7));
#elif defined(__AVX__)
  return sum4(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
#else
  return sum4(v);
#endif
}

/// Columns c .. c + kLanes - 1 of whatever row.
struct Columns {
  int64_t c;
  [[gnu::always_inline]] Vec load(const float* row) const {
    Vec v;
    __builtin_memcpy(&v, row + c, sizeof v);
    return v;
  }
  [[gnu::always_inline]] Vec load(const Bf16* row) const {
    Halves v;
    __builtin_memcpy(&v, row + c, sizeof v);
    return widen(v);
  }
  [[gnu::always_inline]] void store(float* row, Vec v) const { __builtin_memcpy(row + c, &v, sizeof v); }
  [[gnu::always_inline]] void store_past_caches(float* row, Vec v) const { KEEL_ISA::store_past_caches(row + c, v); }
  [[gnu::always_inline]] void store_past_caches(Bf16* row, Vec v) const {
    KEEL_ISA::store_past_caches(row + c, narrow(v));
  }
  /// v with 0 in lanes beyond the row.
  [[gnu::always_inline]] Vec keep(Vec v) const { return v; }
};

/// The last n < kLanes columns, from c on; lanes beyond them load as 0 and are not stored.
struct LastColumns {
  int64_t c, n;
  Vec load(const float* row) const {
    Vec v{};
    for (int64_t i = 0; i < n; ++i) v[i] = row[c + i];
    return v;
  }
  Vec load(const Bf16* row) const {
    Halves v{};
    for (int64_t i = 0; i < n; ++i) v[i] = row[c + i].bits;
    return widen(v);
  }
  void store(float* row, Vec v) const {
    for (int64_t i = 0; i < n; ++i) row[c + i] = v[i];
  }
  void store_past_caches(float* row, Vec v) const { store(row, v); }
  void store_past_caches(Bf16* row, Vec v) const {
    const Halves narrowed = narrow(v);
    for (int64_t i = 0; i < n; ++i) row[c + i].bits = narrowed[i];
  }
  Vec keep(Vec v) const {
    Vec kept{};
    for (int64_t i = 0; i < n; ++i) kept[i] = v[i];
    return kept;
  }
};

/// body(at) for the columns 0 .. d-1, `at` being Columns or LastColumns.
template <class Body>
[[gnu::always_inline]] inline void for_columns(int64_t d, Body body) {
  int64_t c = 0;
  for (; c + kLanes <= d; c += kLanes) body(Columns{c});
  if (c < d) body(LastColumns{c, d - c});
}

struct TwoSums {
  float first, second;
};

/// body(at, s, t) adds to the lanes s and t; the result is the sums of their lanes over all columns. Each sum runs in
/// several chains of additions, which is faster and rounds less.
template <class Body>
[[gnu::always_inline]] inline TwoSums sum_columns2(int64_t d, Body body) {
  Vec s0{}, s1{}, s2{}, s3{}, t0{}, t1{}, t2{}, t3{};
  int64_t c = 0;
  for (; c + 4 * kLanes <= d; c += 4 * kLanes) {
    body(Columns{c}, s0, t0);
    body(Columns{c + kLanes}, s1, t1);
    body(Columns{c + 2 * kLanes}, s2, t2);
    body(Columns{c + 3 * kLanes}, s3, t3);
  }
  for (; c + kLanes <= d; c += kLanes) body(Columns{c}, s0, t0);
  if (c < d) body(LastColumns{c, d - c}, s1, t1);
  return {sum((s0 + s1) + (s2 + s3)), sum((t0 + t1) + (t2 + t3))};
}

/// As sum_columns2, for one sum: body(at, s).
template <class Body>
[[gnu::always_inline]] inline float sum_columns(int64_t d, Body body) {
  return sum_columns2(d, [&](auto at, Vec& s, Vec&) { body(at, s); }).first;
}

}  // namespace
}  // namespace keel::KEEL_ISA
