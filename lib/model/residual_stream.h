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
#include "keel/model/model_config.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/sublayers.h"

namespace keel {

/// What the skip path of a sublayer multiplies a row of the stream by, element by element: a, the vector (null: 1) and the
/// outer norm's inverse root mean square of that row (null: 1).
struct SkipFactors {
  View<const float, 1> a, vector, outer_r;
};

/// What runs between the branches: the state that is carried from the embedding to the head, and what joins the output
/// of one branch to the input of the next. `i` counts the sublayers of the list that runs, n = its length. All views
/// are [N, hidden_size], N = tokens of the batch given to begin(); the state is fp32, inputs and outputs of branches and
/// their gradients are in DecoderOptions::compute. What takes Rows works on these rows alone, in ranges
/// that begin on chunks (common/chunks.h), on whatever context it is given; the rest follows when all rows are done.
class ResidualStream {
 public:
  virtual ~ResidualStream() = default;

  /// Where the embedding of an N-token batch is written.
  virtual View<float, 2> embedding_output(int64_t N) = 0;
  /// Before a forward pass.
  virtual void begin(Context&, const ParameterBuffers&) = 0;
  /// From the embedding to the input of the first branch.
  virtual void start(Context&, const ParameterBuffers&, Rows) = 0;
  /// Makes branch_input(i) again from the kept state, with the same bits.
  virtual void restore(Context&, const ParameterBuffers&, int64_t i, Rows) = 0;
  /// Input of branch i; i = n: input of the output head. Valid from join(i - 1) or restore(i) until that of i + 2 (i - 2)
  /// if training, else until the next join.
  virtual AnyView<const void, 2> branch_input(int64_t i) const = 0;
  /// Where branch i writes its output.
  virtual AnyView<void, 2> branch_output(int64_t i) = 0;
  /// Whether the backward pass reads branch_output(i).
  virtual bool keeps_branch_output(int64_t i) const = 0;
  /// Keeps it for that; join(i) does so too.
  virtual void keep_branch_output(Context&, int64_t i, Rows) = 0;
  /// Joins the output of branch i to the state and makes branch_input(i + 1).
  virtual void join(Context&, const ParameterBuffers&, int64_t i, Rows) = 0;

  /// Backward, from i = n - 1 down: join_backward(i), branch i, input_backward(i); then add_join_gradients(i) and
  /// add_input_gradients(i), of which only sums of rows are left to do, before the same step of sublayer
  /// i - SingleStreamPlan::kSumsKept.
  /// Where the gradient of branch_input(i) is written (i = n: of the head's input).
  virtual AnyView<void, 2> branch_input_gradient(int64_t i) = 0;
  /// After the gradient of branch_input(i) is written, i = n included: its way back as far as branch i's own activations
  /// are needed.
  virtual void input_backward(Context&, const ParameterBuffers&, int64_t i, Rows) = 0;
  /// Makes branch_output_gradient(i) from the gradients of branch_input(i + 1) and of the state.
  virtual void join_backward(Context&, const ParameterBuffers&, int64_t i, Rows) = 0;
  /// Valid until join_backward(i - 2).
  virtual AnyView<const void, 2> branch_output_gradient(int64_t i) const = 0;
  virtual void add_join_gradients(Context&, const ParameterBuffers&, int64_t i) = 0;
  virtual void add_input_gradients(Context&, const ParameterBuffers&, int64_t i) = 0;
  /// Gradient of the embedding's output as a sum of one or two terms (the second may be null). After input_backward(0).
  struct EmbeddingGradient {
    View<const float, 2> first;
    AnyView<const void, 2> second;
  };
  virtual EmbeddingGradient embedding_gradient() const = 0;

  /// For those who look on. The state that entered sublayer i, i = n: the last one.
  virtual View<const float, 2> state(int64_t i) const = 0;
  /// After input_backward(i): the complete gradient of state(i). Overwritten by the next call.
  virtual View<const float, 2> state_gradient(Context&, const ParameterBuffers&, int64_t i) = 0;
  /// After join(i).
  virtual SkipFactors skip_factors(const ParameterBuffers&, int64_t i) const = 0;
};

/// Regions of a single stream x_0 .. x_n:
///   u = scale N_in(x),  f = N_br(F),  x' = N_out(a x + b f)         with what each sublayer's wiring has of these
struct SingleStreamPlan {
  static constexpr int64_t kSumsKept = 2 * kGroupsKept;
  ElementType compute = ElementType::fp32;
  std::vector<Region<float>> x;         ///< streams, n + 1
  std::vector<Region<void>> normed, u;  ///< N_in(x), or x in bf16; branch inputs (= normed without a scale): n + 1;
                                        ///< in training they share memory by parity, but for the head
  std::vector<KeptRegion> F;            ///< branch outputs, n
  std::vector<Region<float>> inner_r, inner_m;  ///< inverse root mean squares and means of the norms
  std::vector<Region<float>> branch_r, branch_m, outer_r, outer_m;
  Region<void> f;           ///< normed branch output
  Region<float> scales;     ///< a, b of each sublayer, then 1, 0 and the gradient of a learned a
  Region<float> learned_a;  ///< [n]
  Region<float> state_gradient;
  Region<void> input_gradient;
  Region<void> branch_gradients[2];  ///< of even and of odd sublayers
  /// Sums of chunks, of the last kSumsKept sublayers.
  Region<float> join_partial[kSumsKept], branch_partial[kSumsKept], input_partial[kSumsKept], scale_partial[kSumsKept];
  Region<void> passing;                          ///< branch outputs that no one reads again, or that are kept rounded
  Region<float> observed_gradient, unused_gain;  ///< with observe_gradients
};

/// Of the options: max_tokens, and what is kept. With `training` that is everything that backward cannot make again in one
/// sweep: x, and F where a norm or a learned scale follows it.
SingleStreamPlan plan_single_stream(const ModelConfig&, const std::vector<Sublayer>&, const DecoderOptions&,
                                    ArenaPlan&);

/// Scratch of a context in which `rows` rows run.
int64_t stream_scratch_bytes(const SingleStreamPlan&, int64_t hidden_size, int64_t rows);

std::unique_ptr<ResidualStream> make_single_stream(Context&, const ModelConfig&, const std::vector<Sublayer>&,
                                                   const SingleStreamPlan&, const Arena&);

}  // namespace keel
