#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/data/batch.h"
#include "keel/generate/sampling.h"
#include "keel/kernels/common/step_scalars.h"
#include "keel/model/decoder_options.h"
#include "keel/model/model_config.h"
#include "keel/model/parameters.h"
#include "keel/train/schedule.h"

namespace keel {

/// Every config key of keel-train (groups model, data, train, optimizer, schedule, checkpoint, validate).
KEEL_API const ConfigSchema& train_schema();

/// How one class of parameters is optimised.
struct ClassSettings {
  double learning_rate = 0;        ///< peak
  double final_learning_rate = 0;  ///< in the same ratio to the peak for every class
  double weight_decay = 0;
  double eps = 0;
};

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.95;
  double clip = 1;                 ///< limit of the gradient's 2-norm; infinity = off
  bool decay_all = false;          ///< decay every parameter, not matrices alone
  double learning_rate = 0;        ///< peak, where a class has none of its own
  double final_learning_rate = 0;  ///< of the last step (cosine), likewise
  std::array<ClassSettings, kParameterClasses> classes{};
};

struct CheckpointSettings {
  int64_t every_steps = 0;   ///< 0: only at the end
  double every_seconds = 0;  ///< 0: never by time
  int64_t keep_last = 0;     ///< 0: all
  int64_t keep_every = 0;
  std::vector<int64_t> at;
};

/// Texts that a run continues while it trains.
struct SampleSettings {
  std::vector<std::string> prompts;
  int64_t every_steps = 0;  ///< 0: only after the last step
  int64_t tokens = 0;       ///< of a continuation at most
  SamplingOptions sampling;

  /// What the tokenizer makes of them (train_samples.h); no prompt_ids: the run makes no samples.
  std::vector<std::vector<int32_t>> prompt_ids = {};
  std::vector<int32_t> stop_ids = {};
  int64_t vocabulary = 0;
};

struct ValidateSettings {
  int64_t every_steps = 0;  ///< 0: only after the last step
  int64_t tokens = 0;       ///< the first so many targets; 0: all
  bool unigram = false;     ///< also report their cross-entropy under the training tokens' frequencies
  SampleSettings sample;
};

inline constexpr int64_t kSublayersPerBlock = 2;
/// Sublayers whose activations are computed again at once in the backward pass (DecoderOptions::segment) for none,
/// branch, block or every:K; empty for anything else.
KEEL_API std::optional<int64_t> recompute_segment(std::string_view mode);
/// The other way round.
KEEL_API std::string recompute_mode(int64_t segment);

/// Everything that determines a run but the data's content. Sizes that the data decides (vocab_size) are filled in.
struct TrainSettings {
  ModelConfig model;
  InitRules init;
  int64_t recompute_segment = 0;  ///< sublayers; 0: everything is kept, and what auto has before it is chosen
  bool recompute_is_auto = false;
  ElementType precision = ElementType::fp32;  ///< of what branches compute with, weights included; masters are fp32
  ElementType activations = ElementType::fp32;
  DataOptions data;
  std::optional<bool> loss_mask;  ///< absent: where a mask lies beside a shard
  uint64_t seed = 0;
  int64_t steps = 0;
  int64_t batch_sequences = 0;
  int64_t micro_batch_sequences = 0;
  bool micro_batch_is_auto = false;
  int64_t log_every = 1;
  int64_t profile_every = 0;    ///< 0: no profiles
  bool keeps_optimizer = true;  ///< false: gradients are looked at, nothing is updated and there is no optimiser state
  double time_limit_seconds = 0;   ///< 0: none
  int64_t memory_limit_bytes = 0;  ///< 0: none
  OptimizerSettings optimizer;
  Schedule schedule;
  CheckpointSettings checkpoint;
  ValidateSettings validate;

  int64_t sequence_length() const { return data.sequence_length; }
  int64_t tokens_per_step() const { return batch_sequences * data.sequence_length; }
};

/// What is known besides the config when a run is resolved.
struct TrainFacts {
  std::optional<int64_t> data_vocab_size;  ///< the tokenizer's largest id + 1
  std::optional<int64_t> data_eod_id;
  std::optional<ModelConfig>
      init_model;        ///< of --init: it is the model; a `model` group that contradicts it is an error
  bool resumed = false;  ///< init_model is the run's own checkpoint: Error(format) if the run's config contradicts it
};

/// The config as a run's settings. Throws Error(config) where values are missing, contradict each other or the facts.
KEEL_API TrainSettings resolve_settings(const Config& config, const TrainFacts& facts);

/// The `model` group alone; `facts` as above.
KEEL_API ModelConfig resolve_model(const Config& config, const TrainFacts& facts, int64_t sequence_length);

/// What the `model` group says, unchecked and with nothing filled in; for what needs no whole model.
KEEL_API ModelConfig given_model(const Config& config);

/// The keys that can say how long a run is; exactly one of them must.
KEEL_API bool is_length(std::string_view key);
/// The one that the config has, the first of several; "" for none.
KEEL_API std::string length_key(const Config& config);
/// A length from an upper layer (--steps, --set) takes back one of another key from a lower layer (the config file).
KEEL_API void keep_uppermost_length(Config& config);

/// Gives the `model` group of a config the values of this model, on top of every layer, with `origin` as their name.
KEEL_API void set_model_keys(Config& config, const ModelConfig& model, const std::string& origin);

/// The sequence length that the config asks for.
KEEL_API int64_t sequence_length_of(const Config& config);

}  // namespace keel
