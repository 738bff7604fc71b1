#pragma once

// One pass of a decoder, for decoder*.cpp.

#include "keel/model/decoder.h"

namespace keel {

/// What all sublayers of a pass are given.
struct Decoder::Pass {
  const ParameterBuffers& parameters;
  const FlatBatch& batch;
  const DecoderObserver& observer;
  RowBlocks blocks;
  bool by_sequences = false;  ///< every piece holds whole sequences
  bool accumulate = false;
  bool recomputes = false;  ///< the start of a segment is restored and its last state is there already
  /// Of kGroupsKept groups of sublayers (run_backward_in_order) in turn; null: weight gradients are products over all rows.
  const BlockSums* block_sums = nullptr;

  BranchCall call(const DecoderPlan& plan, int64_t i, int64_t group = 0) const {
    return {.parameters = parameters,
            .batch = batch,
            .sublayer = plan.sublayers[i],
            .slot = i,
            .block_sums = block_sums == nullptr ? nullptr : &block_sums[group % kGroupsKept]};
  }
};

}  // namespace keel
