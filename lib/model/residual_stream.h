#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/model/arena.h"
#include "keel/model/model_config.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/sublayers.h"

namespace keel {

/// What runs between the branches: the state that is carried from the embedding to the head, and what joins the output
/// of one branch to the input of the next. `i` counts the sublayers of the list that runs, n = its length. All views
/// are [N, hidden_size], N = tokens of the batch given to begin().
class ResidualStream {
 public:
  virtual ~ResidualStream() = default;

  /// Where the embedding of an N-token batch is written.
  virtual View<float, 2> embedding_output(int64_t N) = 0;
  /// From the embedding to the input of the first branch.
  virtual void begin(Context&, const ParameterBuffers&) = 0;
  /// Input of branch i; i = n: input of the output head. Valid until backward if training, else until the next join.
  virtual View<const float, 2> branch_input(int64_t i) const = 0;
  /// Where branch i writes its output.
  virtual View<float, 2> branch_output(int64_t i) = 0;
  /// Joins the output of branch i to the state and makes branch_input(i + 1).
  virtual void join(Context&, const ParameterBuffers&, int64_t i) = 0;

  /// Backward, from i = n - 1 down. Where the gradient of branch_input(i) is written (i = n: of the head's input).
  virtual View<float, 2> branch_input_gradient(int64_t i) = 0;
  /// The gradient of branch_output(i), from those of branch_input(i + 1) and of the state. It may share memory with
  /// branch_input_gradient(i), which is written after its last use.
  virtual View<const float, 2> join_backward(Context&, const ParameterBuffers&, int64_t i) = 0;
  /// Gradient of the embedding's output as a sum of one or two terms (the second may be null).
  struct EmbeddingGradient {
    View<const float, 2> first, second;
  };
  virtual EmbeddingGradient begin_backward(Context&, const ParameterBuffers&) = 0;
};

/// Regions of a single stream x_0 .. x_n with seams  x' = N_out(a x + b F),  u' = N_in(x').
struct SingleStreamPlan {
  std::vector<Region<float>> x, u, F;  ///< streams n + 1, branch inputs n + 1, branch outputs n
  std::vector<Region<float>> outer_r, inner_r;
  Region<float> state_gradient, branch_gradient, partial, scales;
};

/// With `training`, everything that backward reads is kept: x always, u where there is a norm, F where there is an
/// outer norm. Otherwise one buffer each.
SingleStreamPlan plan_single_stream(const ModelConfig&, const std::vector<Sublayer>&, int64_t max_tokens, bool training,
                                    ArenaPlan&);

std::unique_ptr<ResidualStream> make_single_stream(Context&, const ModelConfig&, const std::vector<Sublayer>&,
                                                   const SingleStreamPlan&, const Arena&);

}  // namespace keel
