#pragma once

#include <cstdint>

#include "keel/kernels/common/any_view.h"

namespace keel {

struct DecoderOptions {
  int64_t max_tokens = 0;     ///< largest N of a batch
  int64_t max_positions = 0;  ///< every position is below this
  int64_t max_sequences = 0;  ///< largest S of a batch; 0: max_tokens
  bool training = true;       ///< keep what the backward pass reads
  /// Sublayers of a segment: only the stream at the start of each is kept, the rest is computed again when its backward
  /// pass is due. Counted from the end, so that the last one, which is still there then, is a whole one. 0: everything is
  /// kept.
  int64_t segment = 0;
  /// What branches compute with: their inputs and outputs, all between these, and the gradients of all that; weights as
  /// ParameterBuffers::compute has them. Streams, their gradients, logits, log-sum-exps, the norms' root mean squares and
  /// gradients of parameters are fp32 always. bf16: on a GPU only.
  ElementType compute = ElementType::fp32;
  /// bf16: branches that compute with fp32 keep projections, queries, keys, values, attention outputs, gates and their own outputs rounded;
  /// forward passes compute with what they are rounded from. Streams, log-sum-exps and the norms' root mean squares are
  /// fp32 always.
  ElementType activations = ElementType::fp32;
  bool observe_gradients = false;  ///< the gradient of every stream can be looked at (DecoderObserver)
  int64_t cache_pages = 0;         ///< pages of the key-value cache; 0: none
  int64_t page_size = 0;           ///< tokens a page
  int64_t logit_rows = 0;          ///< rows that logits() makes at a time; 0: none are asked for

  bool rounds_activations() const {
    return training && compute == ElementType::fp32 && activations == ElementType::bf16;
  }
  int64_t sequences() const { return max_sequences > 0 ? max_sequences : max_tokens; }
  /// Pages of the longest sequence.
  int64_t pages_of_sequence() const { return page_size > 0 ? (max_positions + page_size - 1) / page_size : 0; }

  /// Of n sublayers, which of the sets of activations the i-th uses: its own, that of its place in the segment, or the
  /// only one.
  int64_t slot(int64_t i, int64_t n) const {
    if (!training) return 0;
    return segment > 0 ? (i + segment - n % segment) % segment : i;
  }
  /// Whether the stream before the i-th of n sublayers is kept.
  bool starts_segment(int64_t i, int64_t n) const { return segment == 0 || i == 0 || slot(i, n) == 0; }
};

}  // namespace keel
