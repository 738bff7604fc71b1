#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/kernels/common/step_scalars.h"
#include "keel/kernels/common/thread_team.h"
#include "keel/model/model_config.h"

namespace keel {

/// One parameter tensor and its place in the flat arrays (weights, gradients, optimiser state).
struct Parameter {
  std::string name;            ///< Hugging Face's where that architecture has the tensor
  std::vector<int64_t> shape;  ///< [out, in] for matrices
  ParameterClass parameter_class = ParameterClass::scalar;
  int64_t offset = 0;  ///< first element in the flat array
  int64_t size = 0;
  double initial_mean = 0, initial_std = 0;  ///< N(mean, std^2); std 0 = constant
  bool frozen = false;                       ///< a constant of the model: no gradient, no decay

  bool is_matrix() const { return shape.size() == 2; }
};

/// A norm's gain and, of a LayerNorm, its bias.
struct NormParameters {
  int64_t gain = -1, bias = -1;
};

/// Indices into the list of what one sublayer owns; -1 for what the wiring or the config does not have.
struct SublayerParameters {
  int64_t first = 0, end = 0;  ///< its own are [first, end) of the list; what a block shares is its attention's
  NormParameters inner_norm, branch_norm, outer_norm;
  int64_t in_scale = -1;       ///< [d]
  int64_t skip_scale = -1;     ///< [d]
  int64_t skip_exponent = -1;  ///< [1]: the skip scale is a exp(s)
  int64_t branch_scale = -1;   ///< [d], or [1] and shared with the block's other sublayer
  int64_t q_proj = -1, k_proj = -1, v_proj = -1, o_proj = -1;  // attention
  int64_t q_bias = -1, k_bias = -1, v_bias = -1, o_bias = -1;
  int64_t q_norm = -1, k_norm = -1, v_norm = -1;
  int64_t gate_proj = -1, up_proj = -1, down_proj = -1;  // feed-forward
  int64_t gate_bias = -1, up_bias = -1, down_bias = -1;
};

/// All parameters of a model in their flat order. q, k, v (and gate, up) of a block follow each other without a gap, so
/// that each group is also one [sum of out, in] matrix for a single product, and so do their biases; every other start
/// is on a 64-byte boundary, and the elements between are zero and stay so.
struct ParameterLayout {
  std::vector<Parameter> parameters;
  std::vector<SublayerParameters> sublayers;
  int64_t embedding = -1, head = -1;  ///< indices; head = embedding when tied
  NormParameters final_norm;
  int64_t size = 0;  ///< elements of a flat array, gaps included

  const Parameter& at(int64_t index) const { return parameters[index]; }
};

/// [out, in] of a block's matrices, those that are multiplied at once as one.
KEEL_API std::array<std::pair<int64_t, int64_t>, 4> block_matrices(const ModelConfig& config);

/// How initial values are chosen beside the config: matrices are N(0, initializer_range^2) times the scheme's factors.
struct InitRules {
  bool plain = false;                ///< without the scheme's factors
  std::optional<double> layerscale;  ///< where the branch vectors of scheme layerscale start; absent: by depth
};

KEEL_API ParameterLayout parameter_layout(const ModelConfig& config, const InitRules& init = {});

/// Draws initial values: element i of a tensor is a function of (seed, tensor name, i) alone, so that models that share
/// a tensor share its start whatever their scheme, thread count or the order of drawing. Gaps become zero. Stopped
/// (base/signals.h) between tensors once a stop is asked for.
KEEL_API void initialise_parameters(const ParameterLayout& layout, uint64_t seed, Threads threads,
                                    HostView<float, 1> weights);

/// The class's name in configs and reports: embedding, attention, mlp, norm, head, scalar.
KEEL_API const char* to_string(ParameterClass parameter_class);

}  // namespace keel
