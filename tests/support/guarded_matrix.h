#pragma once

#include <cmath>
#include <vector>

#include "keel/base/view.h"
#include "support/numeric.h"

namespace keel::testing {

/// A matrix with `pad` unused elements after each row, `misalign` before the first and guards around it all.
class GuardedMatrix {
 public:
  GuardedMatrix(int64_t rows, int64_t columns, int64_t pad = 0, int64_t misalign = 0)
      : rows_(rows), columns_(columns), stride_(columns + pad), memory_(rows * stride_, misalign) {}
  GuardedMatrix(int64_t rows, int64_t columns, const std::vector<float>& values, int64_t pad = 0, int64_t misalign = 0)
      : GuardedMatrix(rows, columns, pad, misalign) {
    assign(values);
  }

  View<float, 2> view() { return {memory_.get(), {rows_, columns_}, {stride_, 1}}; }
  void assign(const std::vector<float>& values) {
    for (int64_t i = 0; i < rows_ * columns_; ++i) memory_.get()[i / columns_ * stride_ + i % columns_] = values[i];
  }
  std::vector<float> values() {
    std::vector<float> v;
    for (int64_t i = 0; i < rows_ * columns_; ++i) v.push_back(memory_.get()[i / columns_ * stride_ + i % columns_]);
    return v;
  }
  /// Nothing but the elements was written.
  ::testing::AssertionResult intact() {
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      if (i % stride_ >= columns_ && !std::isnan(memory_.get()[i])) {
        return ::testing::AssertionFailure() << "padding of row " << i / stride_ << " was written";
      }
    }
    return memory_.intact();
  }

 private:
  int64_t rows_, columns_, stride_;
  Guarded<float> memory_;
};

}  // namespace keel::testing
