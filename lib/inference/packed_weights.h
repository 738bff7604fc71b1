#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/weight_matrix.h"
#include "keel/model/arena.h"
#include "keel/model/parameter_buffers.h"

namespace keel {

/// fp32, bf16, q8_0
KEEL_API const char* to_string(WeightType type);
KEEL_API std::optional<WeightType> weight_type(std::string_view name);

/// The parameters of a model with every matrix in one type of weights, rounded as narrow_bf16 or quantise_q8_0 do, and
/// all vectors (gains, biases, scales) in fp32. Matrices that follow each other in the layout do so here.
class KEEL_API PackedWeights {
 public:
  /// Plans memory. `layout` is parameter_layout's; its offsets come to be those of vectors in an array of fp32.
  PackedWeights(ParameterLayout layout, WeightType type, ArenaPlan& plan);

  const ParameterLayout& layout() const { return layout_; }
  /// Reads the parameters into the arena that was planned, matrix by matrix: no more of the file than one is resident.
  /// Errors as TensorSet::read.
  void read(Context&, const TensorSet& tensors, const std::string& tied_head, const Arena& arena);
  /// What a decoder runs on, once read; views of the arena and of this.
  ParameterBuffers buffers(const Arena& arena) const;

 private:
  ParameterLayout layout_;
  WeightType type_;
  Region<float> vectors_;
  Region<char> values_;
  Region<uint16_t> scales_;
  /// Of a matrix: bytes of values, and scales, before its own.
  struct Place {
    int64_t values = 0, scales = 0;
  };
  std::vector<Place> places_;  ///< one a parameter
  std::vector<WeightMatrix> matrices_;
};

}  // namespace keel
