#pragma once

#include <functional>
#include <memory>

#include "keel/base/export.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/model/decoder.h"

namespace keel {

inline constexpr int64_t kDefaultPositions = 2048;  ///< used of a model whose config names no limit

/// Weights with a decoder that only runs forward, for scoring and generation: those of a model folder, or of a model
/// in training. Takes and gives arrays of the host, complete when a call returns.
class KEEL_API InferenceModel {
 public:
  /// Reads config and weights, and allocates everything it needs. Errors as parse_model_config, plan_decoder and
  /// TensorSet::read give them; Error(memory) if a GPU has less left than memory() says, or the system refuses the
  /// allocation. options.training and options.compute are ignored.
  /// `interrupted` as in Decoder. `weights`: the type that matrices are kept in (weight_matrix.h). bf16 is what a GPU
  /// computes with then (DecoderOptions::compute), for its tensor cores; all else, and every CPU, computes with fp32.
  InferenceModel(Context& ctx, const ModelFolder& folder, DecoderOptions options,
                 std::function<bool()> interrupted = {}, WeightType weights = WeightType::fp32);
  /// Borrows weights and memory, which outlive it: `plan`, made with training = false, and `parameters` lie in `arena`.
  /// Sees the weights as they are at each call. Allocates next to nothing.
  InferenceModel(Context& ctx, const ModelConfig& config, const ParameterBuffers& parameters, const DecoderPlan& plan,
                 const Arena& arena, std::function<bool()> interrupted = {});
  ~InferenceModel();

  const ModelConfig& config() const;
  /// What it takes: weights, activations, and what operations keep on a GPU. Null where memory is borrowed.
  const ArenaPlan* memory() const;

  /// As Decoder's. What follows a forward pass is about its batch, which stays as it is until then.
  bool forward(const HostBatch& batch);
  void logits(HostView<const int32_t, 1> rows, HostView<float, 2> logits);
  void loss(StepScalars& scalars);
  void score(HostView<const int32_t, 1> rows, HostView<const int32_t, 1> targets, HostView<const float, 1> weights,
             HostView<float, 1> nll, HostView<int32_t, 1> argmax);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Counts what an InferenceModel of these options keeps on a GPU of what it is handed.
KEEL_API void expect_batches(OperationMemory&, const DecoderOptions& options);

/// The layout of a config, once the folder's tensors are found to be those that it wants: no memory is asked for on the
/// word of a config alone. Errors as TensorSet::match gives them.
KEEL_API ParameterLayout found_layout(const ModelConfig& config, const TensorSet& tensors);

}  // namespace keel
