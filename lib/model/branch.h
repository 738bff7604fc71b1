#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/model/arena.h"
#include "keel/model/decoder_options.h"
#include "keel/model/flat_batch.h"
#include "keel/model/model_config.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/sublayers.h"

namespace keel {

/// The branches F_l of a decoder, attention and feed-forward, without the norms around them.
/// Slot i keeps what sublayer i of the list needs for its backward pass; the plan may give several the same memory.
class Branches {
 public:
  virtual ~Branches() = default;

  /// F = F_l(u).  u, F: [N, hidden_size].
  virtual void forward(Context&, const ParameterBuffers&, const FlatBatch&, const Sublayer&, int64_t slot,
                       View<const float, 2> u, View<float, 2> F) = 0;

  /// du = gradient of u, from dF; weight gradients are overwritten or, with accumulate, added to.
  /// du may share memory with dF, not with u.
  virtual void backward(Context&, const ParameterBuffers&, const FlatBatch&, const Sublayer&, int64_t slot,
                        bool accumulate, View<const float, 2> dF, View<const float, 2> u, View<float, 2> du) = 0;
};

/// Regions of the attention branches, one set a sublayer: projections (with rotated q and k, unless `normed` holds
/// those), the normed q, k and perhaps v, rotated, with their inverse root mean squares, attention output, log-sum-exp,
/// and the pages of the key-value cache.
struct AttentionPlan {
  std::vector<Region<float>> qkv, normed, inverse_rms, out, lse, cache_keys, cache_values;
  int64_t normed_columns = 0;
  Region<float> d_qkv, d_out, delta, partial, cos, sin;
};
AttentionPlan plan_attention(const ModelConfig&, const std::vector<Sublayer>&, const DecoderOptions&, ArenaPlan&);
std::unique_ptr<Branches> make_attention(Context&, const ModelConfig&, const AttentionPlan&, const DecoderOptions&,
                                         const Arena&);

/// Regions of the feed-forward branches: gate and up projections, one pair a sublayer. The product silu(gate) up is
/// computed again in the backward pass.
struct MlpPlan {
  std::vector<Region<float>> gate_up;
  Region<float> h, d_h, partial;
};
MlpPlan plan_mlp(const ModelConfig&, const std::vector<Sublayer>&, const DecoderOptions&, ArenaPlan&);
std::unique_ptr<Branches> make_mlp(const ModelConfig&, const MlpPlan&, const Arena&);

}  // namespace keel
