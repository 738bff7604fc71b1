#pragma once

// bfloat16, in names and rounding as CUDA's. The emulation, see ../README.md.

#include <bit>
#include <cstdint>

#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
  /// The nearest, ties to even; NaN becomes 0x7fff, as CUDA's does.
  constexpr __nv_bfloat16(float f) : __x(rounded(f)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(__x) << 16); }
  constexpr operator __nv_bfloat16_raw() const { return {__x}; }

 protected:
  unsigned short __x;

 private:
  static constexpr unsigned short rounded(float f) {
    const auto bits = std::bit_cast<uint32_t>(f);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
  }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

// An fp32 result of two bf16 rounded to bf16 is the exact one rounded: fp32 has more than twice the digits.
inline constexpr __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {static_cast<float>(a) + static_cast<float>(b)};
}
inline constexpr __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {static_cast<float>(a) - static_cast<float>(b)};
}
inline constexpr __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {static_cast<float>(a) * static_cast<float>(b)};
}
inline constexpr __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {static_cast<float>(a) / static_cast<float>(b)};
}
inline constexpr __nv_bfloat16 operator-(__nv_bfloat16 a) {
  return {-static_cast<float>(a)};
}

inline constexpr float __bfloat162float(__nv_bfloat16 a) {
  return a;
}
inline constexpr __nv_bfloat16 __float2bfloat16(float f) {
  return f;
}
inline constexpr __nv_bfloat16 __float2bfloat16_rn(float f) {
  return f;
}
inline constexpr __nv_bfloat16 __float2bfloat16_rz(float f) {
  return __nv_bfloat16_raw{f != f ? static_cast<unsigned short>(0x7fff)
                                  : static_cast<unsigned short>(std::bit_cast<uint32_t>(f) >> 16)};
}
inline constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) {
  return static_cast<__nv_bfloat16_raw>(a).x;
}
inline constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
  return __nv_bfloat16_raw{x};
}

inline constexpr __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {x, y};
}
inline constexpr __nv_bfloat162 __float22bfloat162_rn(float2 v) {
  return {v.x, v.y};
}
inline constexpr __nv_bfloat162 __float2bfloat162_rn(float x) {
  return {x, x};
}
inline constexpr __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return {x, y};
}
inline constexpr __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) {
  return {x, x};
}
inline constexpr float2 __bfloat1622float2(__nv_bfloat162 v) {
  return {v.x, v.y};
}
inline constexpr float __low2float(__nv_bfloat162 v) {
  return v.x;
}
inline constexpr float __high2float(__nv_bfloat162 v) {
  return v.y;
}
inline constexpr __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) {
  return v.x;
}
inline constexpr __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) {
  return v.y;
}
