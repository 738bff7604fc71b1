#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/base/process.h"
#include "keel/base/progress.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/train/run_setup.h"

namespace keel {

/// What the device can do at most; a CPU with the threads and in the process that train.
struct MachineLimits {
  double bytes_per_second = 0;          ///< memory (kernels/machine_rate)
  double flops_per_second = 0;          ///< multiply-adds in registers
  double product_flops_per_second = 0;  ///< the step's own matrix products run alone (throughput.h)
};

/// Of the context's device: `product_rate`, and the rest measured now: half a second, and memory beyond the caches.
KEEL_API MachineLimits measure_limits(Context& ctx, double product_rate);

/// One training step: how long it took, and of that each operation.
struct StepTimes {
  double seconds = 0;
  std::map<std::string, OperationProfile::Totals> operations;

  /// What passed in none of them: the batch, starting threads, what is between two operations.
  double overhead_seconds() const;
};

/// The step of median time, of an even number the faster one in the middle: times of its operations add up, which
/// medians of their own would not. At least one.
KEEL_API StepTimes median_step(std::vector<StepTimes> steps);

/// The least time that an operation can take: that of its FLOPs or of its bytes, whichever is longer.
struct OperationLimit {
  double seconds = 0;  ///< 0: it has neither
  bool by_memory = false;
};

/// FLOPs of matrix products, whose names begin with "product", at the rate of products, all others at that of
/// multiply-adds.
KEEL_API OperationLimit operation_limit(const std::string& name, const OperationProfile::Totals& totals,
                                        const MachineLimits& limits);

/// What --profile tells of a run's steps.
struct StepProfile {
  int64_t steps = 0;  ///< that were timed
  int64_t tokens_per_step = 0;
  int64_t micro_batch_sequences = 0;
  std::string device;  ///< Context::name
  bool on_gpu = false;
  bool is_emulated = false;  ///< the CPU stands for the GPU: neither its times nor its limits are a GPU's
  int threads = 0;
  Isa isa = Isa::generic;
  double flops_per_token = 0;             ///< flops.h
  double recomputed_flops_per_token = 0;  ///< on top
  StepTimes step;                         ///< median_step of them
  MachineLimits limits;
  ProcessMemory memory;   ///< after the first step, before anything was measured
  int64_t gpu_bytes = 0;  ///< of a GPU: what the run had taken of its memory by then

  double flops_per_second() const;
  /// Of the rate of the products alone.
  double product_rate_share() const { return flops_per_second() / limits.product_flops_per_second; }
};

/// Operations as an array, the one that takes longest first; those of keel.train.profile/1.
KEEL_API Json operations_json(const StepTimes& step, const MachineLimits& limits);
/// `results` of keel.train.profile/1.
KEEL_API Json step_profile_json(const StepProfile& profile);
/// The same as a table of at most 80 columns.
KEEL_API std::string step_profile_text(const StepProfile& profile);

/// Trains for one step to warm up and `steps` more, each after a measurement of its products alone, then measures the
/// machine. Weights are drawn from the seed or those of --init; nothing is written. Warns when an update was skipped
/// because the gradient was not finite. Stopped on a signal.
KEEL_API StepProfile profile_steps(Context& ctx, const RunSetup& setup, int64_t steps, Progress& progress);

}  // namespace keel
