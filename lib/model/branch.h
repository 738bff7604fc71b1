#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/row_blocks.h"
#include "keel/model/arena.h"
#include "keel/model/block_sums.h"
#include "keel/model/decoder_options.h"
#include "keel/model/flat_batch.h"
#include "keel/model/model_config.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/sublayers.h"

namespace keel {

/// One branch in one pass. Slot i keeps what sublayer i of the list needs for its backward pass; the plan may give several
/// the same memory.
struct BranchCall {
  const ParameterBuffers& parameters;
  const FlatBatch& batch;
  const Sublayer& sublayer;
  int64_t slot = 0;
  const BlockSums* block_sums = nullptr;  ///< backward; null: weight gradients are products over all rows at once
};

/// The branches F_l of a decoder, attention and feed-forward, without the norms around them, cut into steps: those that
/// take Rows work on these rows alone, in any order of ranges that begin on chunks (common/chunks.h) and, for mix and
/// mix_backward, hold whole sequences, on whatever context they are given; the others follow when all rows are done.
///   forward    F = F_l(u):   forward_in(u), mix, forward_out(F)
///   backward   backward_out(dF), mix_backward, backward_in(du); add_mix_gradients, add_gradients
/// Matrices are those of the whole batch, [N, hidden_size], in DecoderOptions::compute.
class Branches {
 public:
  virtual ~Branches() = default;

  /// Whether rows look at each other: without, mix and mix_backward do nothing.
  virtual bool mixes_rows() const = 0;

  virtual void forward_in(Context&, const BranchCall&, Rows, AnyView<const void, 2> u) = 0;
  virtual void mix(Context&, const BranchCall&, Rows) = 0;
  /// F null: only what the backward pass needs is wanted.
  virtual void forward_out(Context&, const BranchCall&, Rows, AnyView<const void, 2> u, AnyView<void, 2> F) = 0;

  virtual void backward_out(Context&, const BranchCall&, Rows, AnyView<const void, 2> dF) = 0;
  virtual void mix_backward(Context&, const BranchCall&, Rows) = 0;
  /// du may not share memory with dF or u.
  virtual void backward_in(Context&, const BranchCall&, Rows, AnyView<const void, 2> dF, AnyView<const void, 2> u,
                           AnyView<void, 2> du) = 0;
  /// Gradients of matrices are overwritten or, with accumulate, added to; those of vectors are added to. Both before the
  /// next branch of its kind begins its backward pass, but where the mix is a step of its own add_gradients comes before
  /// that one's mix_backward at the latest; and with block_sums and neither biases nor norms of heads, only before these
  /// block_sums are used again: nothing else is read then. Of what comes after the mix: after backward_out, dF is not
  /// read any more.
  virtual void add_mix_gradients(Context&, const BranchCall&, bool accumulate, AnyView<const void, 2> dF) = 0;
  virtual void add_gradients(Context&, const BranchCall&, bool accumulate, AnyView<const void, 2> dF,
                             AnyView<const void, 2> u) = 0;
};

/// Regions of the attention branches, one set a sublayer but for what KeptRegions share: projections (with rotated q and
/// k, unless `normed` holds those), the normed q, k and perhaps v, rotated, with their inverse root mean squares,
/// attention output, log-sum-exp, and the pages of the key-value cache.
struct AttentionPlan {
  std::vector<KeptRegion> qkv, normed, out;
  std::vector<Region<float>> inverse_rms, lse;
  std::vector<Region<void>> cache_keys, cache_values;
  int64_t normed_columns = 0;
  Region<void> d_qkv, d_out;
  Region<float> delta, cos, sin;
  Region<float> q_norm_partial, k_norm_partial, v_norm_partial, qkv_bias_partial, o_bias_partial;  ///< sums of chunks
};
AttentionPlan plan_attention(const ModelConfig&, const std::vector<Sublayer>&, const DecoderOptions&, ArenaPlan&);
std::unique_ptr<Branches> make_attention(Context&, const ModelConfig&, const AttentionPlan&, const DecoderOptions&,
                                         const Arena&);

/// Regions of the feed-forward branches: gate and up projections, one pair a sublayer. Where weight gradients are
/// products over all rows, the values give their place to their gradients, and the product silu(gate) up is computed
/// again in the place of its gradient, h; else both are scratch of the blocks of rows.
struct MlpPlan {
  std::vector<KeptRegion> gate_up;
  Region<void> h;
  Region<float> gate_bias_partial, down_bias_partial;  ///< sums of chunks

  /// Bytes of what stays untouched where weight gradients are summed block by block.
  int64_t whole_batch_bytes() const;
};
/// Scratch of a context in which `rows` rows run.
int64_t mlp_scratch_bytes(int64_t intermediate_size, int64_t rows, ElementType compute);
MlpPlan plan_mlp(const ModelConfig&, const std::vector<Sublayer>&, const DecoderOptions&, ArenaPlan&);
std::unique_ptr<Branches> make_mlp(const ModelConfig&, const MlpPlan&, const DecoderOptions&, const Arena&);

}  // namespace keel
