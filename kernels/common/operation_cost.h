#pragma once

namespace keel {

/// The least that an operation has to do: arithmetic (a fused multiply-add counts two; an exponential some 20) and
/// memory that it reads or writes once each.
struct OperationCost {
  double flops = 0;
  double bytes = 0;
};

}  // namespace keel
