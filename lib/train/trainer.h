#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "keel/base/export.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/data/batch.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/common/context.h"
#include "keel/model/decoder.h"
#include "keel/model/gradient_profile.h"
#include "keel/train/settings.h"
#include "keel/train/train_memory.h"
#include "keel/train/train_samples.h"

namespace keel {

/// What one step tells the host, fetched once at its end. Loss and norm are of the weights before the update.
struct StepResult {
  double loss = 0;           ///< mean nats per target token of the global batch
  double grad_norm = 0;      ///< of the mean gradient, before clipping
  double learning_rate = 0;  ///< of this step, where a class has none of its own
  double seconds = 0;        ///< from its beginning or, if another was not collected then, from that one's end
  bool non_finite = false;   ///< loss or gradient is not finite: nothing was updated
  bool empty = false;        ///< no target counts (all are masked): loss is NaN, nothing was updated
  std::optional<GradientProfile> profile;  ///< of the weights before the update, where it was asked for
};

/// What a step does besides.
struct StepRequest {
  bool profile = false;                                  ///< needs settings.profile_every above 0
  std::function<void(int64_t sequences)> progress = {};  ///< called after each micro-batch with those done
};

/// A model, its optimiser state and what trains them. Knows nothing of files: see training_run.h.
class KEEL_API Trainer {
 public:
  /// `train` and `validation` outlive it. `interrupted` is asked inside micro-batches.
  Trainer(Context& ctx, const TrainSettings& settings, const BatchReader& train, const BatchReader* validation,
          std::function<bool()> interrupted = {});
  ~Trainer();

  /// Initial weights drawn from the seed, and from the first micro-batch of step 0 where the scheme profiles one;
  /// optimiser state zero. Stopped (base/signals.h) if interrupted in that.
  void initialise();
  /// Weights from a model folder or checkpoint; optimiser state zero.
  void load_weights(const TensorSet& tensors);
  /// exp_avg.NAME and exp_avg_sq.NAME of every parameter.
  void load_optimizer(const TensorSet& tensors);

  /// Step t = 0, 1, ...: batch, gradient, clip, update. Empty if interrupted: then weights and optimiser state are
  /// those before the step, and so they are after an Error (data that can't be read).
  /// Without settings.keeps_optimizer nothing is updated. A profile changes no bit of the training.
  std::optional<StepResult> step(int64_t t, const StepRequest& request = {});

  /// The parts of a step. On a GPU begin() and finish() return when their work is enqueued, so that the device need not wait
  /// for the host: the next step may be begun before this one is collected, and finished after. begin() does the first
  /// micro-batch, finish() the others and the update; false if interrupted. A step that was begun changes neither weights
  /// nor optimiser state; it is given up by beginning another, and by a validation.
  bool begin(int64_t t, const StepRequest& request = {});
  bool finish();
  /// Waits until the step that was finished is done.
  StepResult collect();
  /// True if begin() and finish() return before their work is done.
  bool runs_behind() const;

  /// Mean nats per target token of the validation data; empty if interrupted, or if `give_up`, asked before each batch
  /// with the sequences done and in all, says so. Needs validation data; Error(format) if none of its targets counts.
  std::optional<double> validate(const std::function<bool(int64_t done, int64_t total)>& give_up = {});

  /// What the weights as they are make of the prompts of validate.sample after `step` updates, one each; changes
  /// nothing that training reads. Empty if interrupted, or if `give_up`, asked at every token, says so. Needs prompts
  /// (Error(internal) without); errors as Generator::run gives them.
  std::optional<std::vector<TrainSample>> sample(int64_t step, const std::function<bool()>& give_up = {});

  /// The name of the first tensor of weights or optimiser state, in the order of saving, with a value that is not
  /// finite; empty if all are. Reads everything once.
  std::string non_finite_tensor() const;

  /// Names, shapes and places of weights and optimiser state, for saving.
  std::vector<TensorSource> weight_tensors() const;
  std::vector<TensorSource> optimizer_tensors() const;

  const TrainMemory& memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace keel
