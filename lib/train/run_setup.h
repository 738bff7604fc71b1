#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/base/report.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/data/batch.h"
#include "keel/data/token_shards.h"
#include "keel/kernels/common/context.h"
#include "keel/model/model_config.h"
#include "keel/train/settings.h"
#include "keel/train/text_codec.h"

namespace keel {

/// A run's config, data and start, checked against each other; nothing is written or allocated for training yet.
struct RunSetup {
  Config config;                                   ///< as given; with --init its `model` group is that model's
  TrainSettings settings;                          ///< micro-batch resolved
  std::vector<TokenData> data;                     ///< one, or the mixture's
  std::optional<TokenData> val_data;               ///< of data.val_path
  std::unique_ptr<BatchReader> train, validation;  ///< validation is null without such data
  std::string init_path;                           ///< "" = drawn from the seed
  std::optional<ModelFolder> init;
  std::vector<FileContent> tokenizer;      ///< for checkpoints: that of the first data set that has one
  std::string tokenizer_sha256;            ///< of its main file
  std::shared_ptr<const TextCodec> codec;  ///< of that tokenizer, where the run makes samples
  Json identity = {};  ///< of the data (data_identity.h), where the run needs it: it costs some reading
};

/// Opens data and --init folder and resolves the settings. Errors as open_token_data, open_model_folder and
/// resolve_settings give them; Error(format) for data sets of different tokenizers, one that has no training part, is
/// too short for a sequence or has no target that counts, and for a tokenizer whose file has the name of one of a
/// checkpoint's own. `resumed` is the model of the checkpoint that a run goes on from: the --init folder,
/// perhaps long gone, is then not looked at. With prompts to sample from `open_codec` opens the data's tokenizer;
/// Error(config) if there is none, or as encode_sample_prompts gives it.
KEEL_API RunSetup prepare_run(const Config& config, const std::string& init_path,
                              const std::optional<ModelConfig>& resumed = {}, const OpenTextCodec& open_codec = {});

/// Reads the first batch, its first 4096 sequences at most, so that data of another vocabulary is noticed before
/// anything is written: Error(format). Stopped on a signal.
KEEL_API void require_readable_start(const RunSetup& setup);

/// Error(config) for train.precision=bf16 on a CPU, which has no products in bf16 that are faster than those in fp32.
KEEL_API void require_precision(const Context&, const TrainSettings& settings);

/// Targets that a validation scores: the first validate.tokens, or all.
KEEL_API int64_t validation_targets(const TrainSettings& settings, const BatchReader& validation);

/// Every input file of the run for its report: shards with the hashes of `identity` where they are of the whole file,
/// the weights of --init with hashes of files up to 1 GiB, taken now. Stopped on a signal.
KEEL_API std::vector<ReportInput> report_inputs(const RunSetup& setup);

}  // namespace keel
