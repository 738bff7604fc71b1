#pragma once

// Weights of each type as device code reads them: Weights<type>::Row is a row of a WeightMatrix.

#include "keel/kernels/common/device.cuh"
#include "keel/kernels/common/weight_matrix.h"

namespace keel {

/// The value of an fp16, exactly: a float of the same fraction has an exponent that is 112 too small.
__device__ inline float widen_fp16(uint16_t half) {
  const unsigned sign = (half & 0x8000U) << 16, rest = (half & 0x7fffU) << 13;
  const bool is_finite = rest < 0x0f800000U;
  const unsigned magnitude = is_finite ? __float_as_uint(__uint_as_float(rest) * 0x1p112F) : (rest | 0x7f800000U);
  return __uint_as_float(sign | magnitude);
}

template <WeightType>
struct Weights;

/// Of a row: `one` element; or kVector from a column that is a multiple of that on, 16 bytes, as `raw` memory first and
/// then four by four in fp32.
template <>
struct Weights<WeightType::fp32> {
  static constexpr int kVector = 4;
  const float* values;

  __device__ Weights(const WeightMatrix& W, int64_t row)
      : values(static_cast<const float*>(W.values) + row * W.columns) {}
  __device__ float one(int64_t c) const { return values[c]; }

  struct Raw {
    float4 values;
    __device__ float4 four(int) const { return values; }
  };
  __device__ Raw raw(int64_t c) const { return {load4(values + c)}; }
};

template <>
struct Weights<WeightType::bf16> {
  static constexpr int kVector = 8;
  const uint16_t* values;

  __device__ Weights(const WeightMatrix& W, int64_t row)
      : values(static_cast<const uint16_t*>(W.values) + row * W.columns) {}
  __device__ float one(int64_t c) const { return __uint_as_float(unsigned{values[c]} << 16); }

  struct Raw {
    uint4 words;
    __device__ float4 four(int i) const {
      const unsigned low = i == 0 ? words.x : words.z, high = i == 0 ? words.y : words.w;
      return make_float4(__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000U), __uint_as_float(high << 16),
                         __uint_as_float(high & 0xffff0000U));
    }
  };
  __device__ Raw raw(int64_t c) const { return {*reinterpret_cast<const uint4*>(values + c)}; }
};

template <>
struct Weights<WeightType::q8_0> {
  static constexpr int kVector = 16;
  const int8_t* values;
  const uint16_t* scales;

  __device__ Weights(const WeightMatrix& W, int64_t row)
      : values(static_cast<const int8_t*>(W.values) + row * W.columns),
        scales(W.scales + row * ((W.columns + kScaledWeights - 1) / kScaledWeights)) {}
  __device__ float one(int64_t c) const {
    return widen_fp16(scales[c / kScaledWeights]) * static_cast<float>(values[c]);
  }

  struct Raw {
    uint4 words;
    float scale;
    __device__ float4 four(int i) const {
      const auto word = static_cast<int>(i == 0 ? words.x : (i == 1 ? words.y : (i == 2 ? words.z : words.w)));
      return make_float4(scale * static_cast<float>(word << 24 >> 24), scale * static_cast<float>(word << 16 >> 24),
                         scale * static_cast<float>(word << 8 >> 24), scale * static_cast<float>(word >> 24));
    }
  };
  __device__ Raw raw(int64_t c) const {
    return {*reinterpret_cast<const uint4*>(values + c), widen_fp16(scales[c / kScaledWeights])};
  }
};

/// Whether rows begin where 16 bytes may be read.
template <WeightType kType>
bool has_vectors(const WeightMatrix& W) {
  return W.columns % Weights<kType>::kVector == 0 && is_aligned(static_cast<const char*>(W.values), 16);
}

/// body(std::integral_constant<WeightType, type>())
template <class Body>
void for_weight_type(WeightType type, Body body) {
  if (type == WeightType::fp32) return body(std::integral_constant<WeightType, WeightType::fp32>());
  if (type == WeightType::bf16) return body(std::integral_constant<WeightType, WeightType::bf16>());
  body(std::integral_constant<WeightType, WeightType::q8_0>());
}

}  // namespace keel
