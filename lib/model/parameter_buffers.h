#pragma once

#include "keel/base/view.h"
#include "keel/model/parameters.h"

namespace keel {

/// The flat arrays of a model on a device, with views of single parameters. In fp32 the master and the compute copy of
/// a parameter are one buffer. `gradients` is null where none are wanted.
struct ParameterBuffers {
  const ParameterLayout* layout = nullptr;
  View<float, 1> weights;
  View<float, 1> gradients;

  View<const float, 2> matrix(int64_t index) const { return matrix_of<const float>(weights, index, index); }
  View<float, 2> d_matrix(int64_t index) const { return matrix_of<float>(gradients, index, index); }
  /// Parameters first .. last, which follow each other without a gap, as one matrix.
  View<const float, 2> matrix(int64_t first, int64_t last) const {
    return matrix_of<const float>(weights, first, last);
  }
  View<float, 2> d_matrix(int64_t first, int64_t last) const { return matrix_of<float>(gradients, first, last); }
  /// Null for index -1 (a norm that the wiring does not have).
  View<const float, 1> gain(int64_t index) const { return vector_of<const float>(weights, index); }
  View<float, 1> d_gain(int64_t index) const { return vector_of<float>(gradients, index); }

 private:
  template <class T>
  View<T, 2> matrix_of(View<float, 1> flat, int64_t first, int64_t last) const {
    const Parameter& head = layout->at(first);
    int64_t rows = 0;
    for (int64_t i = first; i <= last; ++i) rows += layout->at(i).shape[0];
    return {flat.data() + head.offset, {rows, head.shape[1]}};
  }
  template <class T>
  View<T, 1> vector_of(View<float, 1> flat, int64_t index) const {
    if (index < 0) return {};
    return {flat.data() + layout->at(index).offset, {layout->at(index).size}};
  }
};

}  // namespace keel
