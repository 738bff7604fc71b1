#include "keel/train/run_setup.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/signals.h"
#include "keel/checkpoint/checkpoint.h"
#include "keel/inference/inference_model.h"
#include "keel/model/model_config_json.h"
#include "keel/train/train_memory.h"
#include "keel/train/train_samples.h"

namespace keel {
namespace {

struct MixturePart {
  std::string path;
  double weight = 1;
};

std::vector<MixturePart> mixture_of(const Config& config) {
  const bool one = config.has("data.path");
  const bool several = config.has("data.mixture");
  if (one && several) throw config.error("data.mixture", "data.path and data.mixture are both given");
  if (one) return {{config.text("data.path"), 1}};
  if (!several)
    throw Error(ErrorKind::usage, "--data must be given", "or data.path, data.mixture in the config",
                "-h shows how it is called");
  const Json& list = config.value("data.mixture");
  const auto bad = [&](size_t i) {
    return Error(ErrorKind::config, "data.mixture must be a list of {\"path\": text, \"weight\": number above 0}",
                 config.where("data.mixture", "/" + std::to_string(i)));
  };
  if (!list.is_array() || list.empty()) throw bad(0);
  std::vector<MixturePart> parts;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& part = list[i];
    if (!part.is_object() || part.size() != 2 || !part.contains("path") || !part.contains("weight")) throw bad(i);
    if (!part["path"].is_string() || !part["weight"].is_number() || !(part["weight"].get<double>() > 0)) throw bad(i);
    parts.push_back({part["path"].get<std::string>(), part["weight"].get<double>()});
  }
  return parts;
}

void require_same_tokenizer(const TokenData& a, const TokenData& b, const char* which) {
  if (a.tokenizer_sha256.empty() || b.tokenizer_sha256.empty() || a.tokenizer_sha256 == b.tokenizer_sha256) return;
  throw Error(ErrorKind::format, std::string(which) + " were made with different tokenizers", a.path + ", " + b.path);
}

TrainFacts facts_of(const std::vector<TokenData>& data, const std::optional<ModelFolder>& init,
                    const std::optional<ModelConfig>& resumed) {
  TrainFacts facts;
  for (const TokenData& set : data) {
    if (set.vocab_size) facts.data_vocab_size = std::max(facts.data_vocab_size.value_or(0), *set.vocab_size);
    if (!facts.data_eod_id) facts.data_eod_id = set.eod_id;
    require_same_tokenizer(data.front(), set, "the data sets of the mixture");
  }
  if (init) facts.init_model = parse_model_config(init->config_text, init->config_path);
  if (resumed) {
    facts.init_model = resumed;
    facts.resumed = true;
  }
  return facts;
}

void require_mask_if_asked(const TrainSettings& settings, const TokenStream& stream, const std::string& path) {
  if (settings.loss_mask.value_or(false) && !stream.has_mask()) {
    throw Error(ErrorKind::config, "data.loss_mask is true but there is no .mask file beside the shards", path);
  }
}

std::unique_ptr<BatchReader> training_reader(const RunSetup& setup, const std::vector<MixturePart>& parts) {
  std::vector<TokenStream> streams;
  std::vector<double> weights;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!setup.data[i].train) throw Error(ErrorKind::format, "the data set has no training shards", parts[i].path);
    require_mask_if_asked(setup.settings, *setup.data[i].train, parts[i].path);
    streams.push_back(*setup.data[i].train);
    weights.push_back(parts[i].weight);
  }
  if (streams.size() == 1) return std::make_unique<BatchReader>(streams.front(), setup.settings.data);
  return std::make_unique<BatchReader>(std::move(streams), weights, setup.settings.data);
}

std::unique_ptr<BatchReader> validation_reader(const RunSetup& setup) {
  std::optional<TokenStream> stream;
  if (setup.val_data) {
    stream = setup.val_data->val ? setup.val_data->val : setup.val_data->train;
  } else {
    for (const TokenData& set : setup.data) {
      if (set.val && !stream) stream = set.val;
    }
  }
  if (!stream) return nullptr;
  DataOptions options = setup.settings.data;
  options.shuffle = false;
  return std::make_unique<BatchReader>(*stream, options);
}

/// Some of the first `targets` targets must have a weight; looks no further than the first that has.
void require_counted_target(const BatchReader& reader, int64_t source, int64_t targets, const char* what) {
  constexpr int64_t kChunk = int64_t{1} << 16;
  const TokenStream& stream = reader.stream(source);
  if (!reader.options().loss_mask || !stream.has_mask()) return;
  const int64_t end = 1 + std::min(targets, stream.tokens() - 1);
  std::vector<uint8_t> mask(kChunk);
  for (int64_t begin = 1; begin < end; begin += kChunk) {
    throw_if_stopped();
    const int64_t count = std::min(kChunk, end - begin);
    stream.read_mask(begin, begin + count, {mask.data(), {count}});
    if (std::any_of(mask.begin(), mask.begin() + count, [](uint8_t byte) { return byte != 0; })) return;
  }
  throw Error(ErrorKind::format, fmt::format("no target of the {} data counts: its loss mask leaves none", what),
              stream.shards().front().path);
}

/// Every source is long enough for a sequence, and some target in it counts.
void require_trainable(const BatchReader& reader) {
  for (int64_t i = 0; i < reader.sources(); ++i) {
    const TokenStream& stream = reader.stream(i);
    if (reader.sequences(i) == 0) {
      throw Error(ErrorKind::format,
                  fmt::format("{} tokens are too few for a sequence of {} inputs and as many targets", stream.tokens(),
                              reader.options().sequence_length),
                  stream.shards().front().path);
    }
    require_counted_target(reader, i, stream.tokens() - 1, "training");
  }
}

/// The tokenizer that checkpoints will hold.
void take_tokenizer(RunSetup& setup) {
  for (TokenData& set : setup.data) {
    for (const FileContent& file : set.tokenizer_files) {
      if (!is_checkpoint_file_name(file.name)) continue;
      throw Error(ErrorKind::format, "the tokenizer's file has a name that checkpoints use themselves: " + file.name,
                  set.manifest_path);
    }
    if (setup.tokenizer.empty()) {
      setup.tokenizer = std::move(set.tokenizer_files);
      setup.tokenizer_sha256 = set.tokenizer_sha256;
    }
    set.tokenizer_files.clear();
  }
  if (setup.val_data) setup.val_data->tokenizer_files.clear();
}

/// Ids of another tokenizer are other words to the model. Two files can hold the same vocabulary, so this only warns.
void warn_of_other_tokenizer(const RunSetup& setup) {
  const std::string& ours = setup.tokenizer_sha256;
  const std::string& theirs = setup.init->tokenizer_path;
  if (ours.empty() || theirs.empty() || sha256_of_file(theirs) == ours) return;
  log::warn("the data was tokenised with another file than {}: the model knows its words by that one's ids", theirs);
}

/// What the run's samples need of the tokenizer.
void prepare_samples(RunSetup& setup, const OpenTextCodec& open_codec) {
  const SampleSettings& sample = setup.settings.validate.sample;
  if (sample.prompts.empty()) {
    if (sample.every_steps > 0)
      log::warn("validate.sample.every_steps is set but there are no validate.sample.prompts");
    return;
  }
  const auto with_tokenizer = std::find_if(setup.data.begin(), setup.data.end(),
                                           [](const TokenData& set) { return !set.tokenizer_path.empty(); });
  if (with_tokenizer == setup.data.end()) {
    throw setup.config.error("validate.sample.prompts",
                             "validate.sample.prompts needs a tokenizer, and the data names none",
                             "data that keel-tokenize made has one");
  }
  if (!open_codec) throw setup.config.error("validate.sample.prompts", "this program makes no samples");
  setup.codec = open_codec(with_tokenizer->tokenizer_path);
  encode_sample_prompts(setup.config, *setup.codec, setup.settings);
}

}  // namespace

RunSetup prepare_run(const Config& config, const std::string& init_path, const std::optional<ModelConfig>& resumed,
                     const OpenTextCodec& open_codec) {
  RunSetup setup{.config = config, .init_path = init_path};
  const std::vector<MixturePart> parts = mixture_of(config);
  const DataFormat format = data_format(config.text("data.format"));
  for (const MixturePart& part : parts) setup.data.push_back(open_token_data(part.path, format));
  if (config.has("data.val_path")) {
    setup.val_data = open_token_data(config.text("data.val_path"), format);
    require_same_tokenizer(setup.data.front(), *setup.val_data, "training and validation data");
  }
  take_tokenizer(setup);
  if (!init_path.empty() && !resumed) {
    setup.init = open_model_folder(init_path);
    warn_of_other_tokenizer(setup);
    (void)found_layout(parse_model_config(setup.init->config_text, setup.init->config_path), setup.init->tensors);
  }
  setup.settings = resolve_settings(config, facts_of(setup.data, setup.init, resumed));
  if (setup.init) set_model_keys(setup.config, setup.settings.model, "--init");
  prepare_samples(setup, open_codec);
  if (const Schedule& schedule = setup.settings.schedule; schedule.warmup_steps > schedule.steps) {
    log::warn("schedule.warmup_steps {} is above the {} steps of the run: the peak is never reached",
              schedule.warmup_steps, schedule.steps);
  }
  if (setup.settings.micro_batch_is_auto) setup.settings.micro_batch_sequences = automatic_micro_batch(setup.settings);
  setup.train = training_reader(setup, parts);
  require_trainable(*setup.train);
  setup.validation = validation_reader(setup);
  if (setup.validation) {
    require_counted_target(*setup.validation, 0, validation_targets(setup.settings, *setup.validation), "validation");
  }
  if (!setup.validation && setup.settings.validate.every_steps > 0) {
    log::warn(
        "validate.every_steps is set but there is no validation data: give --val-data, or --val-fraction to "
        "keel-tokenize");
  }
  return setup;
}

void require_readable_start(const RunSetup& setup) {
  constexpr int64_t kSequences = 4096;
  const BatchReader& reader = *setup.train;
  std::vector<int32_t> tokens(static_cast<size_t>(reader.options().sequence_length + 1));
  for (const SequenceRef& sequence : reader.step_sequences(0, std::min(setup.settings.batch_sequences, kSequences))) {
    throw_if_stopped();
    const int64_t begin = sequence.index * reader.options().sequence_length;
    reader.stream(sequence.source)
        .read(begin, begin + std::ssize(tokens), {tokens.data(), {std::ssize(tokens)}}, reader.options().vocab_size);
  }
}

void require_precision(const Context& ctx, const TrainSettings& settings) {
  if (ctx.device() != Device::cpu || settings.precision == ElementType::fp32) return;
  throw Error(ErrorKind::config, "train.precision bf16 is for GPUs: a CPU computes in fp32", "train.precision",
              "--device cuda, --plan-device to plan, or fp32: --set train.precision=fp32 (of a run that goes on: "
              "--override)");
}

int64_t validation_targets(const TrainSettings& settings, const BatchReader& validation) {
  const int64_t all = validation.stream(0).tokens() - 1;
  return settings.validate.tokens > 0 ? std::min(settings.validate.tokens, all) : all;
}

std::vector<ReportInput> report_inputs(const RunSetup& setup) {
  constexpr int64_t kLargestHashed = int64_t{1} << 30;
  std::vector<ReportInput> inputs;
  for (const Json& shard : setup.identity) {
    const bool whole = shard["hashed"] == "whole";
    inputs.push_back({.path = shard["path"].get<std::string>(),
                      .bytes = shard["bytes"].get<int64_t>(),
                      .xxh3 = whole ? shard["xxh3"].get<std::string>() : ""});
  }
  if (!setup.init) return inputs;
  for (const SafetensorsFile& file : setup.init->tensors.files()) {
    const bool hashes = file.bytes() <= kLargestHashed;
    inputs.push_back({.path = file.path(), .bytes = file.bytes(), .xxh3 = hashes ? xxh3_of_file(file.path()) : ""});
  }
  return inputs;
}

}  // namespace keel
