#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/row_blocks.h"
#include "keel/kernels/common/step_scalars.h"
#include "keel/kernels/common/task_chains.h"
#include "keel/model/arena.h"
#include "keel/model/branch.h"
#include "keel/model/decoder_options.h"
#include "keel/model/flat_batch.h"
#include "keel/model/model_config.h"
#include "keel/model/parameter_buffers.h"
#include "keel/model/residual_stream.h"
#include "keel/model/sublayers.h"

namespace keel {

/// Every region of a decoder's activations and workspace; the parameters' arrays are planned by their owner.
struct DecoderPlan {
  std::vector<Sublayer> sublayers;
  DecoderOptions options;
  SingleStreamPlan stream;
  AttentionPlan attention;
  MlpPlan mlp;
  Region<float> logits;
  Region<void> logit_inputs;
  Region<void> d_logits;    ///< where they do not go to the place of the logits
  int64_t logits_rows = 0;  ///< rows of the [tokens, vocab] logits that exist at a time
};

/// Plans a decoder that runs these sublayers (all_sublayers(config), or fewer). `config` is resolved(). Error(memory)
/// for more than 64 bits address, or a cache of more rows than cache_rows (kv_cache.h) allows.
KEEL_API DecoderPlan plan_decoder(const ModelConfig& config, std::vector<Sublayer> sublayers,
                                  const DecoderOptions& options, ArenaPlan& arena);

/// How the rows of a batch are cut for what works on rows alone: pieces whose activations of a sublayer fit a second-level
/// cache, but not of so few rows that products lose speed. Pieces of whole sequences, where these all have sequence_length
/// tokens and that is about as good.
KEEL_API RowBlocks decoder_row_blocks(const ModelConfig& config, int64_t N, int64_t sequence_length, int threads);

/// Whether weight gradients are added up piece by piece, while the rows of a piece lie in the cache, and not made by one
/// product over all rows at last: where that moves less memory.
KEEL_API bool decoder_sums_by_blocks(const ModelConfig& config, const RowBlocks& blocks);

/// Floats in which blocks of rows then leave their parts of weight gradients, those of kGroupsKept sublayers of each kind,
/// beside the plan.
KEEL_API int64_t decoder_block_sums(const ModelConfig& config, const RowBlocks& blocks);

/// Bytes of scratch in the context and those of its threads.
KEEL_API int64_t decoder_scratch_bytes(const Context&, const ModelConfig& config, const DecoderPlan& plan,
                                       const RowBlocks& blocks);

/// Bytes of the plan that passes in such blocks leave untouched, so that the system gives no memory for them.
KEEL_API int64_t decoder_untouched_bytes(const ModelConfig& config, const DecoderPlan& plan, const RowBlocks& blocks);

/// Looks at a pass as it goes by; empty functions are not called. Of sublayer i of the list, in forward order:
/// branch(i, x_i, F_i), F_i without norm or scale; in backward order from i = n: gradient(i, dL/dx_i), of the sum of the
/// losses, complete. The views are in device memory and valid during the call; a branch that is computed again is not
/// shown again.
struct DecoderObserver {
  std::function<void(int64_t i, View<const float, 2> x, AnyView<const void, 2> F)> branch;
  std::function<void(int64_t i, View<const float, 2> gradient)> gradient;  ///< needs DecoderOptions::observe_gradients
};

/// A decoder-only transformer: embedding, residual sublayers, output head. Owns no memory; everything lies in the
/// arena.
class KEEL_API Decoder {
 public:
  /// `interrupted`, if given, is asked every few sublayers; once it says yes the pass ends early.
  Decoder(Context& ctx, const ModelConfig& config, const DecoderPlan& plan, const Arena& arena,
          std::function<bool()> interrupted = {});
  ~Decoder();

  /// Runs the sublayers. Afterwards head_input() is valid. False if interrupted: the results are then worthless.
  bool forward(const ParameterBuffers& parameters, const FlatBatch& batch, const DecoderObserver& observer = {});

  /// [N, hidden_size], in DecoderOptions::compute: what the output head multiplies.
  AnyView<const void, 2> head_input() const;

  /// After forward(): adds the weighted negative log-likelihoods of the batch's targets to `scalars` (loss_sum and
  /// weight_sum); nll [N], if not null, gets each target's, in nats.
  void loss(const ParameterBuffers& parameters, const FlatBatch& batch, View<StepScalars, 1> scalars,
            View<float, 1> nll = {});

  /// After forward(): logits[k, :] of row rows[k] of the batch.  rows: [K]; logits: [K, V].
  /// Error(shape) for K above options.logit_rows.
  void logits(const ParameterBuffers& parameters, View<const int32_t, 1> rows, View<float, 2> logits);
  /// [logits_rows of the plan, V] of its workspace, for logits() too; others overwrite it.
  View<float, 2> logit_chunk() const;

  /// After forward(): nll[k] in nats of targets[k] after row rows[k] of the batch, and the most probable token there.
  /// rows, targets, weights (all 1), nll, argmax: [K]; Error(shape) for K above
  /// options.logit_rows.
  void score(const ParameterBuffers& parameters, View<const int32_t, 1> rows, View<const int32_t, 1> targets,
             View<const float, 1> weights, View<float, 1> nll, View<int32_t, 1> argmax);

  /// forward(), the loss as in loss(), and the gradient of loss_sum, the SUM over targets. Gradients of all parameters
  /// are overwritten or, with `accumulate`, added to. False if interrupted; the gradients are then worthless.
  bool forward_backward(const ParameterBuffers& parameters, const FlatBatch& batch, bool accumulate,
                        View<StepScalars, 1> scalars, View<float, 1> nll = {}, const DecoderObserver& observer = {});

  /// After forward(): the stream x_i that entered sublayer i of the list, x_n at its end. Where streams are not kept
  /// (inference, recomputation) only the last.
  View<const float, 2> stream(int64_t i) const;
  /// After forward(): what the skip path multiplies a row of x_i by, but for the outer norm's gain.
  SkipFactors skip_factors(const ParameterBuffers& parameters, int64_t i) const;

 private:
  struct Pass;
  struct ForwardStep;
  struct BackwardStep;
  AnyView<const void, 2> pick_rows(View<const int32_t, 1> rows);
  Branches& branch(int64_t i) const;
  void head(const ParameterBuffers& parameters, const FlatBatch& batch, View<StepScalars, 1> scalars,
            View<float, 1> nll, AnyView<void, 2> dx, View<float, 2> dW);
  RowBlocks row_blocks(int64_t N) const;
  static bool holds_sequences(const RowBlocks& blocks, const FlatBatch& batch);
  std::array<BlockSums, kGroupsKept> block_sums(const RowBlocks& blocks, bool accumulate);
  template <class Step, class OnRows>
  bool run_rows(const RowBlocks& blocks, const Step& begin, const std::vector<Step>& ends, OnRows on_rows);
  static std::vector<ForwardStep> stretches(const ForwardStep& begin, const ForwardStep& until);
  bool run_sublayers(const Pass& pass, int64_t first, int64_t end);
  void backward_step(Context& ctx, const Pass& pass, int64_t group, const BackwardStep& step, Rows rows);
  void add_mix_gradients(Context& ctx, const Pass& pass, int64_t group, int64_t i);
  void add_gradients(Context& ctx, const Pass& pass, int64_t group, int64_t i);
  int64_t first_of_group(int64_t first, int64_t end) const;
  bool runs_in_order(const Pass& pass) const;
  bool run_backward_in_order(const Pass& pass, int64_t first, int64_t end);
  bool run_backward(const Pass& pass, int64_t first, int64_t end);
  void zero_sparse_gradients(const ParameterBuffers& parameters);

  Context& ctx_;
  ModelConfig config_;
  DecoderPlan plan_;
  const Arena& arena_;
  std::function<bool()> interrupted_;
  std::unique_ptr<ResidualStream> stream_;
  std::unique_ptr<Branches> attention_, mlp_;
  std::vector<float> block_sums_;
  TaskChains chains_;
};

}  // namespace keel
