#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/base/progress.h"
#include "keel/kernels/common/context.h"
#include "keel/train/run_setup.h"

namespace keel {

/// What keel-analyze gradients is asked for.
struct GradientQuestion {
  std::function<void(Config&)> configure;  ///< applies config file, --set and flags
  std::string model_path;       ///< run, checkpoint or model folder; "": the initial weights that the config describes
  std::optional<int64_t> step;  ///< whose batch is taken, from 0; absent: the checkpoint's next one, else 0
  std::optional<int64_t> sequences;  ///< of the batch, in place of the config's
};

/// A question with its model and data opened.
struct GradientSetup {
  Config config;  ///< as given, of a run on top of its own, with the model's values
  RunSetup run;   ///< settings without an optimiser
  int64_t step = 0;
};

/// Of a config only the model, the data and the size of the batch are needed. A run, or a checkpoint inside one, brings
/// its own. Errors as prepare_run gives them; Error(config) for a step that the data's order does not reach,
/// Error(memory) if model and batch need more than train.memory_limit or the context's device has.
KEEL_API GradientSetup prepare_gradients(Context& ctx, const GradientQuestion& question);

/// The gradient of the mean loss of one batch and what it meets on its way (gradient_profile.h).
struct GradientAnalysis {
  Json results;            ///< docs/schemas/keel.analyze.gradients.1.json
  bool is_finite = false;  ///< loss and gradient
};

/// Computes with exactly the weights that keel-train would: drawn from the seed, and for scheme admin profiled on the
/// first micro-batch of step 0. Allocates weights, gradients and activations, no optimiser state. Stopped on a signal;
/// Error(format) for a batch without a target that counts.
KEEL_API GradientAnalysis analyze_gradients(Context& ctx, const GradientSetup& setup, Progress& progress);

/// The results for people, at most 80 columns wide: of very many sublayers a selection, and a line that says so.
KEEL_API std::string gradient_table(const Json& results);

}  // namespace keel
