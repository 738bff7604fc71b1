#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/model/arena.h"
#include "keel/model/decoder.h"
#include "keel/model/gradient_profile.h"
#include "keel/model/parameters.h"
#include "keel/train/settings.h"

namespace keel {

/// Every region of a training run on one device: the parameters' flat arrays, the decoder's buffers and the batch.
struct TrainMemory {
  ArenaPlan arena;
  ParameterLayout layout;
  int64_t micro_batch_sequences = 0;
  int64_t cu_seqlens_capacity = 0;
  DecoderPlan decoder;
  std::optional<GradientProfilePlan> profile;  ///< where some steps are profiled
  std::optional<DecoderPlan> sampler;          ///< with the same weights, for the run's samples
  /// layout.size each; the last two are AdamW's m and v, if it runs.
  Region<float> weights, gradients, exp_avg, exp_avg_sq;
  Region<Bf16> compute;  ///< likewise, the weights as branches in bf16 read them
  Region<StepScalars> scalars;
  Region<double> norm_partial;
  Region<int32_t> tokens, targets, positions, cu_seqlens;
  Region<float> batch_weights;
};

/// Plans a run with this micro-batch; nothing is allocated. Pure.
KEEL_API TrainMemory plan_training(const TrainSettings& settings, int64_t micro_batch_sequences);

/// What a run takes of a device: the arena, but for what of its workspace stays untouched, and what libraries,
/// primitives, threads and the process itself take.
struct MemoryEstimate {
  int64_t arena_bytes = 0;
  int64_t operation_bytes = 0;  ///< of a GPU: what operations keep there beside the arena
  int64_t library_bytes = 0;
  int64_t total_bytes() const { return arena_bytes + operation_bytes + library_bytes; }
};

/// The process's expected peak of resident anonymous memory on this machine's CPU. `held_bytes`: what it holds before
/// the run's own memory, the layout of the parameters included (process_memory().anonymous_bytes).
KEEL_API MemoryEstimate estimate_memory(Context& ctx, const TrainMemory& memory, const TrainSettings& settings,
                                        int64_t held_bytes);

/// The same on every machine, for what must not depend on it.
inline constexpr int64_t kLibraryAllowance = int64_t{64} << 20;
KEEL_API MemoryEstimate estimate_with_allowance(const TrainMemory& memory);

/// Of a GPU's memory: the same arena, what operations keep, to the byte, and an allowance for CUDA.
///   kCudaContextBytes  a context with its kernels loaded: 300 to 600 MB by GPU and driver
inline constexpr int64_t kCudaContextBytes = int64_t{640} << 20;
KEEL_API MemoryEstimate estimate_gpu_memory(const TrainMemory& memory);
/// Of what a GPU has left where its context is there already.
///   kCudaCodeBytes     kernels are loaded when they first run, and allocations rounded up
inline constexpr int64_t kCudaCodeBytes = int64_t{64} << 20;
KEEL_API MemoryEstimate estimate_device_memory(const TrainMemory& memory);

/// A matrix product of a training step.
struct TrainingProduct {
  MatmulShape shape;
  /// Runs on blocks of rows (decoder_row_blocks), a weight gradient where these have room for sums (decoder_block_sums).
  bool of_rows = false;
  /// Of C: fp32 for logits and gradients of weights; else, as that of A and B, settings.precision.
  ElementType result = ElementType::fp32;
  int64_t times = 0;  ///< in one step
};

/// Every different matrix product of a training step, in the order of the model, for planning and measuring.
KEEL_API std::vector<TrainingProduct> training_products(const TrainSettings& settings, int64_t micro_batch_sequences);

/// The micro-batch that `auto` stands for, a pure function of the settings (train.memory_limit included; threads and
/// samples and profiles, which must not change a run's numbers, are not):
/// the largest divisor of the batch with at most about 4096 tokens and 4 GB of activations (or one sequence) that fits
/// the limit with kLibraryAllowance beside its arena; 1 when none does. Whether that fits on this machine is for
/// estimate_memory to say. With train.recompute=auto and a limit: of those of at most about 4096 tokens that fit in some
/// mode the one whose step costs least (nominal_step_cost, recomputation.h); with auto and no limit as with none.
KEEL_API int64_t automatic_micro_batch(const TrainSettings& settings);

/// What a micro-batch can be, ascending: the divisors of the batch.
KEEL_API std::vector<int64_t> possible_micro_batches(const TrainSettings& settings);

using EstimateMemory = std::function<MemoryEstimate(const TrainMemory&)>;

/// The largest of them that takes at most `limit_bytes`, with train.recompute=auto in some mode; 0 if there is none. Throws
/// Stopped on a signal.
KEEL_API int64_t largest_fitting_micro_batch(const TrainSettings& settings, int64_t limit_bytes,
                                             const EstimateMemory& estimate);

}  // namespace keel
