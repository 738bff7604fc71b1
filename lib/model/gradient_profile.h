#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/kernels/common/context.h"
#include "keel/model/arena.h"
#include "keel/model/decoder.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/parameters.h"

namespace keel {

/// |dLoss/dW|, the 2-norm over a parameter tensor. The name is the tensor's without layer and module: q_proj,
/// outer_attention_layernorm, k_proj.bias.
struct WeightGradientNorm {
  std::string name;
  double norm = 0;
};

/// What sublayer l does to the stream and to its gradient. Of a global batch of R rows (tokens) of width d, with the loss
/// that is averaged over its target tokens.
struct SublayerProfile {
  double stream_gradient_norm = 0;  ///< |dLoss/dx_l|, the 2-norm over all rows
  double stream_rms = 0;            ///< sqrt(mean x_l^2)
  double branch_rms = 0;            ///< sqrt(mean F_l^2), F_l the branch without norm or scale of its own
  double stream_branch_cosine = 0;  ///< sum x_l F_l / sqrt(sum x_l^2 sum F_l^2), over all rows at once
  /// What the skip path multiplies the stream by, the outer norm's gain left out: the geometric mean over rows and
  /// columns of |a omega r_o|, with r_o the outer norm's inverse root mean square; 1 for what the sublayer has not.
  double skip_gain = 0;
  std::vector<WeightGradientNorm> weight_gradient_norms;  ///< of its own parameters that are trained
};

/// How gradients and activations run through a model, from one batch. Numbers may be anything a double can be.
struct GradientProfile {
  std::vector<SublayerProfile> sublayers;
  double final_stream_gradient_norm = 0, final_stream_rms = 0;  ///< of x_L, before the final norm
  double log_skip_product = 0;                                  ///< sum of the logarithms of all skip gains
  std::vector<WeightGradientNorm> weight_gradient_norms;        ///< embedding, final_norm, head (none when tied)
};

/// Sums of a profile, in double.
struct GradientProfilePlan {
  Region<double> sums;     ///< those of each sublayer and of the last stream, then one of each parameter
  Region<double> partial;  ///< of the sums' fixed chunks
};

/// Plans for batches of max_tokens rows of a decoder that runs all sublayers with DecoderOptions::observe_gradients.
KEEL_API GradientProfilePlan plan_gradient_profile(const ModelConfig& config, const ParameterLayout& layout,
                                                   int64_t max_tokens, ArenaPlan& arena);

/// Makes profiles of a decoder's passes. Everything but fetch() only enqueues work, which reads what training uses and
/// writes none of it. Results do not depend on the number of threads.
class KEEL_API GradientProfiler {
 public:
  /// All but `ctx` are kept by reference; the layout is that of the parameters given later.
  GradientProfiler(Context& ctx, const ModelConfig& config, const ParameterLayout& layout, const Decoder& decoder,
                   const GradientProfilePlan& plan, const Arena& arena);

  /// Forgets what it has: a new batch.
  void begin();
  /// For Decoder::forward_backward with each micro-batch of the batch; `parameters` outlives it.
  DecoderObserver observer(const ParameterBuffers& parameters);
  /// After the last micro-batch, before the weights change: the gradients of the parameters, and the skips' scales.
  void end(const ParameterBuffers& parameters);
  /// Waits. `weight_sum`: of all targets of the batch, what the mean loss divides by.
  GradientProfile fetch(double weight_sum);

 private:
  View<double, 1> sums(int64_t sublayer, int64_t which, int64_t count) const;
  void add_moments(View<const float, 2> x, AnyView<const void, 2> y, View<double, 1> sums);
  double log_skip_gain(const std::vector<double>& sums, int64_t l) const;
  SublayerProfile sublayer_profile(const std::vector<double>& sums, int64_t l, double weight_sum) const;
  std::vector<WeightGradientNorm> weight_norms(const std::vector<double>& sums, int64_t first, int64_t end,
                                               double weight_sum) const;

  Context& ctx_;
  const Decoder& decoder_;
  const ParameterLayout& layout_;
  const Arena& arena_;
  GradientProfilePlan plan_;
  int64_t width_, sublayers_;
  int64_t rows_ = 0;  ///< of the micro-batches so far
};

}  // namespace keel
