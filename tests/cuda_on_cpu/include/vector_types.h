#pragma once

// CUDA's vector types, with the sizes and alignments that the programming guide gives. The emulation, see ../README.md.

#define KEEL_CUDA_VECTOR(type, name, align2, align4)                        \
  struct name##1 {                                                          \
    type x;                                                                 \
  };                                                                        \
  struct align2 name##2 {                                                   \
    type x, y;                                                              \
  };                                                                        \
  struct name##3 {                                                          \
    type x, y, z;                                                           \
  };                                                                        \
  struct align4 name##4 {                                                   \
    type x, y, z, w;                                                        \
  };                                                                        \
  inline constexpr name##1 make_##name##1(type x) {                         \
    return {x};                                                             \
  }                                                                         \
  inline constexpr name##2 make_##name##2(type x, type y) {                 \
    return {x, y};                                                          \
  }                                                                         \
  inline constexpr name##3 make_##name##3(type x, type y, type z) {         \
    return {x, y, z};                                                       \
  }                                                                         \
  inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { \
    return {x, y, z, w};                                                    \
  }
KEEL_CUDA_VECTOR(signed char, char, alignas(2), alignas(4))
KEEL_CUDA_VECTOR(unsigned char, uchar, alignas(2), alignas(4))
KEEL_CUDA_VECTOR(short, short, alignas(4), alignas(8))
KEEL_CUDA_VECTOR(unsigned short, ushort, alignas(4), alignas(8))
KEEL_CUDA_VECTOR(int, int, alignas(8), alignas(16))
KEEL_CUDA_VECTOR(unsigned, uint, alignas(8), alignas(16))
KEEL_CUDA_VECTOR(float, float, alignas(8), alignas(16))
#undef KEEL_CUDA_VECTOR

// Those of four 8-byte values are deprecated since CUDA 13 and left out.
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};
inline constexpr longlong2 make_longlong2(long long x, long long y) {
  return {x, y};
}
inline constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
  return {x, y};
}
inline constexpr double2 make_double2(double x, double y) {
  return {x, y};
}

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
