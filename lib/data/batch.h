#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/data/sequence_order.h"
#include "keel/data/token_shards.h"

namespace keel {

/// A sequence of T inputs and T targets: tokens [iT, iT + T] of source `source`, i = `index`. Only its first `targets`
/// targets count (T but for the last sequence of a validation set); what lies beyond is padding: token 0, weight 0.
struct SequenceRef {
  int64_t source = 0, index = 0, targets = 0;
  bool operator==(const SequenceRef&) const = default;
};

/// The caller's buffers for one flat batch of S sequences, N = S T tokens. cu_seqlens needs cu_seqlens_capacity(S).
struct BatchBuffers {
  HostView<int32_t, 1> tokens;     ///< [N] inputs
  HostView<int32_t, 1> targets;    ///< [N] the token after each input
  HostView<int32_t, 1> positions;  ///< [N] from 0 in each attention segment
  HostView<float, 1> weights;  ///< [N] of targets: the loss mask's byte at the target token (0 or 1), 1 without a mask
  HostView<int32_t, 1> cu_seqlens;  ///< [segments + 1 or more] bounds of the attention segments: 0 .. N
};

struct BatchInfo {
  int64_t segments = 0;         ///< cu_seqlens[segments] = N
  int64_t longest_segment = 0;  ///< in tokens
  int64_t counted_targets = 0;  ///< targets with a weight that is not 0
  double weight_sum = 0;
};

struct DataOptions {
  int64_t sequence_length = 0;  ///< T >= 1
  bool shuffle = true;          ///< training order; false takes sequences in order
  bool document_mask = false;   ///< attention within a document only
  bool loss_mask = true;        ///< use the mask files beside the shards
  uint64_t seed = 0;            ///< of the order
  int64_t vocab_size = 0;       ///< ids are checked against it
  std::optional<int64_t>
      eod_id;  ///< document bounds of data without a document array: a document ends after this token
};

/// Sequences of one or several token streams, their order in training, and flat batches of them.
/// A source of N tokens has floor((N - 1) / T) sequences an epoch; the tail is dropped.
/// With document_mask segments are cut at document bounds inside a sequence (an end-of-document token belongs to the
/// document it ends) and positions restart there; the target after a document's last token is the next one's first and
/// counts.
class KEEL_API BatchReader {
 public:
  /// One source. Throws Error(config) when options contradict the data (document_mask without document bounds), and
  /// Error(format) for a stream that is shorter than one sequence of one target (N < 2).
  BatchReader(TokenStream stream, const DataOptions& options);
  /// A mixture: each source keeps its own order and epochs, positions are dealt by Mixture(weights).
  BatchReader(std::vector<TokenStream> streams, const std::vector<double>& weights, const DataOptions& options);

  const DataOptions& options() const { return options_; }
  int64_t sources() const { return static_cast<int64_t>(streams_.size()); }
  const TokenStream& stream(int64_t source) const { return streams_[source]; }
  /// Sequences of one epoch of that source; 0 when it is too short for one.
  int64_t sequences(int64_t source = 0) const;
  /// The smallest cu_seqlens buffer that holds any batch of that many sequences.
  int64_t cu_seqlens_capacity(int64_t sequences) const;

  /// Sequences of training step `step` (from 0) with `batch` a step: positions step * batch .. step * batch + batch
  /// - 1. A source that is dealt a position but is shorter than T + 1 tokens throws Error(format).
  std::vector<SequenceRef> step_sequences(int64_t step, int64_t batch) const;

  /// Validation: sequences 0, 1, ... of source 0 that together have the first min(tokens, N - 1) targets, in order; the
  /// last one is shortened (SequenceRef::targets) to that.
  std::vector<SequenceRef> validation_sequences(int64_t tokens) const;

  /// Fills out with those sequences, in that order. out.tokens must have exactly S T elements (so the others but
  /// cu_seqlens). Token ids outside the vocabulary throw as TokenStream::read says.
  BatchInfo read(std::span<const SequenceRef> sequences, const BatchBuffers& out) const;

 private:
  // One sequence into the buffers from offset `at` on.
  void read_tokens(const SequenceRef& sequence, int64_t at, const BatchBuffers& out) const;
  void read_weights(const SequenceRef& sequence, int64_t at, const BatchBuffers& out, BatchInfo& info) const;
  void cut_segments(const SequenceRef& sequence, int64_t at, const BatchBuffers& out, BatchInfo& info) const;

  std::vector<TokenStream> streams_;
  DataOptions options_;
  std::vector<SequenceOrder> orders_;
  Mixture mixture_;
};

}  // namespace keel
