#pragma once

// Arithmetic that CUDA has beyond <cmath>. Functions that are approximate on a GPU (__expf, rsqrtf ...) are as exact here
// as the C library's.

#include <math.h>

#include <bit>
#include <cstdint>
#include <type_traits>

inline float rsqrtf(float x) {
  return 1.0F / sqrtf(x);
}
inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __sinf(float x) {
  return sinf(x);
}
inline float __cosf(float x) {
  return cosf(x);
}
inline void __sincosf(float x, float* s, float* c) {
  sincosf(x, s, c);
}
inline float __powf(float x, float y) {
  return powf(x, y);
}
inline float __tanf(float x) {
  return tanf(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x > 0 ? fminf(x, 1) : 0;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1 / x;
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1 / sqrt(static_cast<double>(x)));
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline double __fma_rn(double x, double y, double z) {
  return fma(x, y, z);
}

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
/// Four bytes of the eight in (x, y), by the low three bits of each nibble of the selector.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t all = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(all >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

/// Loads and stores with a hint for the caches.
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldca(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}

/// Of two values of one type; of floating point that which is a number.
template <class T>
requires std::is_arithmetic_v<T>
constexpr T min(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x ? y : (y < x ? y : x);
  else
    return y < x ? y : x;
}
template <class T>
requires std::is_arithmetic_v<T>
constexpr T max(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x ? y : (x < y ? y : x);
  else
    return x < y ? y : x;
}
