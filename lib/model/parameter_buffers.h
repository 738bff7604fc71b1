#pragma once

#include <span>
#include <vector>

#include "keel/base/view.h"
#include "keel/kernels/common/weight_matrix.h"
#include "keel/model/parameters.h"

namespace keel {

/// The flat arrays of a model on a device, with views of single parameters. `gradients` is null where none are wanted.
/// What passes multiply by, weight() and matrix(), is the master copy of a matrix in fp32; or, where `compute` holds one
/// matrix for each parameter (nothing for a vector), that. Who only runs forward passes may have no master copy then.
struct ParameterBuffers {
  const ParameterLayout* layout = nullptr;
  View<float, 1> weights;
  View<float, 1> gradients;
  std::span<const WeightMatrix> compute = {};

  WeightMatrix weight(int64_t index) const { return weight(index, index); }
  /// Parameters first .. last, which follow each other without a gap, as one matrix.
  WeightMatrix weight(int64_t first, int64_t last) const {
    if (compute.empty()) return matrix_of<const float>(weights, first, last);
    WeightMatrix all = compute[first];
    for (int64_t i = first + 1; i <= last; ++i) all.rows += compute[i].rows;
    return all;
  }

  /// As weight(), of weights that are not q8_0.
  AnyView<const void, 2> matrix(int64_t index) const { return weight(index).numbers(); }
  AnyView<const void, 2> matrix(int64_t first, int64_t last) const { return weight(first, last).numbers(); }
  View<float, 2> d_matrix(int64_t index) const { return matrix_of<float>(gradients, index, index); }
  View<float, 2> d_matrix(int64_t first, int64_t last) const { return matrix_of<float>(gradients, first, last); }
  /// Null for index -1 (a norm or bias that the model does not have).
  View<const float, 1> vector(int64_t index) const { return vector_of<const float>(weights, index, index); }
  View<float, 1> d_vector(int64_t index) const { return vector_of<float>(gradients, index, index); }
  /// Parameters first .. last, which follow each other without a gap, as one vector; null for -1.
  View<const float, 1> vector(int64_t first, int64_t last) const {
    return vector_of<const float>(weights, first, last);
  }
  View<float, 1> d_vector(int64_t first, int64_t last) const { return vector_of<float>(gradients, first, last); }

 private:
  template <class T>
  View<T, 2> matrix_of(View<float, 1> flat, int64_t first, int64_t last) const {
    const Parameter& head = layout->at(first);
    int64_t rows = 0;
    for (int64_t i = first; i <= last; ++i) rows += layout->at(i).shape[0];
    return {flat.data() + head.offset, {rows, head.shape[1]}};
  }
  template <class T>
  View<T, 1> vector_of(View<float, 1> flat, int64_t first, int64_t last) const {
    if (first < 0) return {};
    int64_t size = 0;
    for (int64_t i = first; i <= last; ++i) size += layout->at(i).size;
    return {flat.data() + layout->at(first).offset, {size}};
  }
};

/// The `compute` of ParameterBuffers: matrices in bf16 at the parameters' places in a flat array, [layout.size].
inline std::vector<WeightMatrix> bf16_matrices(const ParameterLayout& layout, const Bf16* flat) {
  std::vector<WeightMatrix> matrices;
  for (const Parameter& p : layout.parameters) {
    matrices.push_back(p.is_matrix() ? WeightMatrix(WeightType::bf16, p.shape[0], p.shape[1], flat + p.offset)
                                     : WeightMatrix());
  }
  return matrices;
}

}  // namespace keel
