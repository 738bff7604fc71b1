#pragma once

#include <cstdint>

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/row_blocks.h"

namespace keel {

/// Sublayers one after the other, one of each kind at most, are a group on the way back; of so many groups sums over rows
/// wait to be added up, while blocks of rows go ahead.
inline constexpr int64_t kGroupsKept = 4;

/// Where blocks of rows leave their parts of weight gradients, [blocks, out, in] each, before these are added up. A single
/// block adds to the gradients themselves.
struct BlockSums {
  int64_t blocks = 0;
  bool accumulate = false;  ///< a single block: its first piece adds too
  float *qkv = nullptr, *o = nullptr, *gate_up = nullptr, *down = nullptr;

  /// Adds dY^T X of the rows of a piece.   sums: one of those above; gradient: [out, in]; dY: [rows, out]; X: [rows, in].
  void add(Context&, float* sums, View<float, 2> gradient, Rows piece, AnyView<const void, 2> dY,
           AnyView<const void, 2> X) const;

  /// gradient = the parts of all blocks or, with accumulate, += these.
  void add_up(Context&, const float* sums, View<float, 2> gradient, bool accumulate) const;
};

}  // namespace keel
