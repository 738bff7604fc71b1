#pragma once

#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/shape_check.h"

namespace keel {

/// What a weight is kept as in memory.
///   fp32   4 bytes
///   bf16   2 bytes: the upper half of an fp32
///   q8_0   34 bytes for 32 weights of a row: weight = scale * value, an fp16 and 32 int8. The product is exact in fp32.
enum class WeightType { fp32, bf16, q8_0 };

/// Weights of a row that share a scale in q8_0; at its end there may be fewer.
inline constexpr int64_t kScaledWeights = 32;

constexpr int64_t scales_of_row(int64_t columns) {
  return (columns + kScaledWeights - 1) / kScaledWeights;
}

/// A matrix [rows, columns] of weights in one of the types, dense; owns nothing.
struct WeightMatrix {
  WeightType type = WeightType::fp32;
  int64_t rows = 0, columns = 0;
  const void* values = nullptr;      ///< [rows, columns] float, uint16_t or int8_t
  const uint16_t* scales = nullptr;  ///< q8_0: [rows, scales_of_row(columns)]

  WeightMatrix() = default;
  WeightMatrix(WeightType t, int64_t r, int64_t c, const void* v, const uint16_t* s = nullptr)
      : type(t), rows(r), columns(c), values(v), scales(s) {}
  /// An fp32 matrix. Error(shape) if it is not dense.
  WeightMatrix(const View<const float, 2>& W)  // NOLINT: implicit, as what takes weights takes these
      : rows(W.extent(0)), columns(W.extent(1)), values(W.data()) {
    check_dense("weights", "W", W, {rows, columns});
  }
  WeightMatrix(const View<float, 2>& W) : WeightMatrix(View<const float, 2>(W)) {}  // NOLINT: implicit
  WeightMatrix(const AnyView<const void, 2>& W)                                     // NOLINT: implicit
      : WeightMatrix(W.type() == ElementType::bf16 ? WeightType::bf16 : WeightType::fp32, W.extent(0), W.extent(1),
                     W.data()) {
    check_dense("weights", "W", W, {rows, columns});
  }
  WeightMatrix(const float* data, const View<const float, 2>::Extents& extents)
      : WeightMatrix(View<const float, 2>(data, extents)) {}

  bool is_fp32() const { return type == WeightType::fp32; }
  /// Of an fp32 matrix.
  View<const float, 2> fp32() const { return {static_cast<const float*>(values), {rows, columns}}; }
  /// Of one that is not q8_0.
  AnyView<const void, 2> numbers() const {
    return {values, type == WeightType::bf16 ? ElementType::bf16 : ElementType::fp32, {rows, columns}};
  }

  WeightMatrix slice(int64_t begin, int64_t end) const {
    WeightMatrix part = *this;
    part.rows = end - begin;
    part.values = static_cast<const char*>(values) + begin * columns * value_bytes();
    if (scales != nullptr) part.scales = scales + begin * scales_of_row(columns);
    return part;
  }

  /// Throws Error(shape), naming the operation, unless it is there (or empty) with these extents.
  void check(const char* operation, int64_t wanted_rows, int64_t wanted_columns) const {
    const bool is_there = values != nullptr && (type != WeightType::q8_0 || scales != nullptr);
    const View<const char, 2> view(is_there ? static_cast<const char*>(values) : nullptr, {rows, columns});
    check_dense(operation, "W", view, {wanted_rows, wanted_columns});
  }

  int64_t value_bytes() const { return is_fp32() ? 4 : (type == WeightType::bf16 ? 2 : 1); }
  int64_t bytes() const {
    const int64_t of_scales = type == WeightType::q8_0 ? rows * scales_of_row(columns) * 2 : 0;
    return rows * columns * value_bytes() + of_scales;
  }
};

}  // namespace keel
