#include "keel/train/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/quantity.h"
#include "keel/model/flops.h"
#include "keel/model/parameters.h"

namespace keel {
namespace {

struct SizeKey {
  const char* key;
  int64_t ModelConfig::*field;
};
constexpr SizeKey kSizes[] = {
    {"model.vocab_size", &ModelConfig::vocab_size},
    {"model.hidden_size", &ModelConfig::hidden_size},
    {"model.intermediate_size", &ModelConfig::intermediate_size},
    {"model.num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"model.num_attention_heads", &ModelConfig::num_attention_heads},
    {"model.num_key_value_heads", &ModelConfig::num_key_value_heads},
    {"model.head_dim", &ModelConfig::head_dim},
    {"model.max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"model.sliding_window", &ModelConfig::sliding_window},
};

struct FlagKey {
  const char* key;
  bool ModelConfig::*field;
};
constexpr FlagKey kFlags[] = {
    {"model.tie_word_embeddings", &ModelConfig::tie_word_embeddings},
    {"model.attention_bias", &ModelConfig::attention_bias},
    {"model.qkv_bias", &ModelConfig::qkv_bias},
    {"model.mlp_bias", &ModelConfig::mlp_bias},
    {"model.qk_norm", &ModelConfig::qk_norm},
    {"model.learnable_alpha", &ModelConfig::learnable_alpha},
    {"model.admin_frozen", &ModelConfig::admin_frozen},
};

struct RealKey {
  const char* key;
  double ModelConfig::*field;
};
constexpr RealKey kReals[] = {
    {"model.rms_norm_eps", &ModelConfig::rms_norm_eps},
    {"model.rope_theta", &ModelConfig::rope_theta},
    {"model.initializer_range", &ModelConfig::initializer_range},
};

struct OptionalRealKey {
  const char* key;
  std::optional<double> ModelConfig::*field;
};
constexpr OptionalRealKey kOptionalReals[] = {
    {"model.residual_alpha", &ModelConfig::residual_alpha},
    {"model.mix_fraction", &ModelConfig::mix_fraction},
};

/// What kernels take as a 32-bit number must be one: neither infinite nor, unless it is 0 itself, 0 there.
double single_precision(const Config& config, const std::string& key) {
  const double value = config.real(key);
  const auto single = static_cast<float>(value);
  if (!std::isfinite(single) || (single == 0 && value != 0)) {
    throw config.error(
        key, fmt::format("{} {} is {} as a 32-bit number", key, format_real(value), single == 0 ? "0" : "infinite"));
  }
  return value;
}

std::optional<double> find_single_precision(const Config& config, const std::string& key) {
  return config.has(key) ? std::optional(single_precision(config, key)) : std::nullopt;
}

/// What the `model` group says, on top of `start`: only keys that were given replace a value.
ModelConfig with_model_keys(const Config& config, ModelConfig start) {
  for (const SizeKey& size : kSizes) {
    if (config.is_given(size.key)) start.*size.field = config.integer(size.key);
  }
  for (const RealKey& real : kReals) {
    if (config.is_given(real.key)) start.*real.field = single_precision(config, real.key);
  }
  for (const FlagKey& flag : kFlags) {
    if (config.is_given(flag.key)) start.*flag.field = config.boolean(flag.key);
  }
  if (config.is_given("model.residual_scheme")) start.residual_scheme = config.text("model.residual_scheme");
  for (const OptionalRealKey& real : kOptionalReals) {
    if (config.is_given(real.key)) start.*real.field = single_precision(config, real.key);
  }
  if (config.is_given("model.norm_type")) start.norm_type = norm_kind(config.text("model.norm_type"));
  if (config.is_given("model.final_norm")) start.final_norm = config.boolean("model.final_norm");
  return start;
}

void refuse_if_true(const Config& config, const char* key) {
  if (config.boolean(key)) throw config.error(key, std::string(key) + " true is not supported by this version");
}

/// Each given model key against the model of --init.
void require_same_model(const Config& config, const ModelConfig& init, bool resumed) {
  const auto conflict = [&](const char* key, const std::string& wanted, const std::string& found) {
    if (resumed) {
      throw Error(
          ErrorKind::format,
          fmt::format("the newest checkpoint is of another model than the run: {} {}, not {}", key, found, wanted), "",
          "a checkpoint from elsewhere lies in the run's folder");
    }
    throw config.error(key,
                       std::string(key) + " " + wanted + " contradicts the " + found + " of the model it starts from",
                       "a model stays what it is: leave the key out, or start from initial weights");
  };
  for (const SizeKey& size : kSizes) {
    if (!config.is_given(size.key)) continue;
    const int64_t wanted = config.integer(size.key);
    const int64_t found = init.*size.field;
    if (wanted != found) conflict(size.key, std::to_string(wanted), std::to_string(found));
  }
  const ModelConfig wanted = with_model_keys(config, init);
  for (const RealKey& real : kReals) {
    if (std::string(real.key) == "model.initializer_range") continue;  // nothing is drawn
    if (wanted.*real.field != init.*real.field) {
      conflict(real.key, std::to_string(wanted.*real.field), std::to_string(init.*real.field));
    }
  }
  for (const FlagKey& flag : kFlags) {
    if (wanted.*flag.field != init.*flag.field) {
      conflict(flag.key, wanted.*flag.field ? "true" : "false", init.*flag.field ? "true" : "false");
    }
  }
  if (wanted.residual_scheme != init.residual_scheme) {
    conflict("model.residual_scheme", wanted.residual_scheme, init.residual_scheme);
  }
  // The scheme's own values may be written out in one place and left out in the other.
  if (wiring_table(wanted) == wiring_table(init) && final_norm_kind(wanted) == final_norm_kind(init)) return;
  for (const OptionalRealKey& real : kOptionalReals) {
    const std::optional<double>&asked = wanted.*real.field, &found = init.*real.field;
    if (asked != found) conflict(real.key, format_real(*asked), found ? format_real(*found) : "scheme's own");
  }
  if (wanted.norm_type != init.norm_type) {
    conflict("model.norm_type", std::string(to_string(*wanted.norm_type)),
             init.norm_type ? std::string(to_string(*init.norm_type)) : "scheme's own kind");
  }
  if (wanted.has_final_norm() != init.has_final_norm()) {
    conflict("model.final_norm", wanted.has_final_norm() ? "true" : "false", init.has_final_norm() ? "true" : "false");
  }
}

void require_vocabulary(const Config& config, const ModelConfig& model, const TrainFacts& facts) {
  if (!facts.data_vocab_size || model.vocab_size >= *facts.data_vocab_size) return;
  const std::string message = "vocab_size " + std::to_string(model.vocab_size) + " is smaller than the tokenizer's " +
                              std::to_string(*facts.data_vocab_size);
  if (facts.init_model) throw Error(ErrorKind::format, message, "--init", "the data was made with another tokenizer");
  throw config.error("model.vocab_size", message, "leave it out to take the tokenizer's");
}

std::optional<double> layerscale_init(const Config& config, const ModelConfig& model) {
  const std::string key = "model.layerscale_init";
  if (!config.is_given(key)) return std::nullopt;
  const double value = single_precision(config, key);
  const std::vector<Wiring> rows = wiring_table(model);
  const auto has_vector = [](const Wiring& row) { return row.branch_scale == LearnedScale::vector; };
  if (std::any_of(rows.begin(), rows.end(), has_vector)) return value;
  throw config.error(key,
                     fmt::format("{} {} has no meaning in scheme '{}'", key, format_real(value), model.residual_scheme),
                     "leave it out, or use layerscale");
}

constexpr std::string_view kAuto = "auto";

int64_t resolve_recompute(const Config& config) {
  const std::string key = "train.recompute", mode = config.text(key);
  if (mode == kAuto) return 0;
  const std::optional<int64_t> segment = recompute_segment(mode);
  if (segment) return *segment;
  throw config.error(
      key, fmt::format("{} '{}' is not known", key, mode),
      fmt::format("it is none, branch, block, every:K, K blocks from 1 to {}, or auto", kMostModelBlocks));
}

ElementType element_type(const Config& config, const char* key) {
  return config.text(key) == "bf16" ? ElementType::bf16 : ElementType::fp32;
}

/// A stream in bf16 rounds away most of what a sublayer adds where the skip is scaled or normed.
void require_stream_dtype(const Config& config, const ModelConfig& model) {
  const std::string key = "train.stream_dtype";
  if (config.text(key) == "fp32") return;
  if (residual_scheme(model.residual_scheme).fp32_stream) {
    throw config.error(key,
                       fmt::format("{} bf16 with scheme '{}': most of each sublayer's update would be rounded away",
                                   key, model.residual_scheme),
                       "its stream must be fp32");
  }
  throw config.error(key, key + " bf16 is not supported by this version", "use fp32");
}

/// Keeps products of counts far from overflow; positions in a micro-batch are 32-bit numbers.
void require_countable(const char* what, int64_t count, int64_t tokens_each, int64_t most_tokens) {
  if (count <= most_tokens / tokens_each) return;
  throw Error(ErrorKind::config, fmt::format("{} {} of {} tokens are more than the {} that can be counted", count, what,
                                             tokens_each, most_tokens));
}

const std::string kEvery = "every:";

constexpr const char* kLengths[] = {"train.steps", "train.tokens", "train.flops", "train.tokens_per_parameter"};

int64_t resolve_steps(const Config& config, const TrainSettings& s) {
  const char* given = nullptr;
  for (const char* key : kLengths) {
    if (!config.has(key)) continue;
    if (given != nullptr) {
      throw config.error(key, std::string(given) + " and " + key + " are both given",
                         "the length of a run is one of them");
    }
    given = key;
  }
  if (given == nullptr) {
    throw Error(ErrorKind::config,
                "train.steps must be given (or train.tokens, train.flops, train.tokens_per_parameter)");
  }
  const std::string key = given;
  const auto tokens_per_step = static_cast<double>(s.tokens_per_step());
  double steps = 0;
  if (key == "train.steps") return config.integer(key);
  if (key == "train.tokens") {
    const int64_t tokens = config.integer(key);
    return (tokens - 1) / s.tokens_per_step() + 1;
  }
  if (key == "train.flops") {
    steps = config.real(key) / train_flops_per_token(s.model, s.sequence_length()) / tokens_per_step;
  } else {
    steps = config.real(key) * static_cast<double>(count_parameters(s.model).total) / tokens_per_step;
  }
  if (!(steps < 9e15)) throw config.error(key, key + " asks for more steps than can be counted");
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps)));
}

int64_t resolve_batch(const Config& config, int64_t sequence_length) {
  const bool by_tokens = config.has("train.batch_tokens");
  const bool by_sequences = config.has("train.batch_sequences");
  if (by_tokens && by_sequences) {
    throw config.error("train.batch_sequences", "train.batch_tokens and train.batch_sequences are both given");
  }
  if (by_sequences) return config.integer("train.batch_sequences");
  if (!by_tokens) throw Error(ErrorKind::config, "train.batch_tokens or train.batch_sequences must be given");
  const int64_t tokens = config.integer("train.batch_tokens");
  if (tokens % sequence_length != 0) {
    throw config.error("train.batch_tokens", "train.batch_tokens " + std::to_string(tokens) +
                                                 " is no multiple of data.sequence_length " +
                                                 std::to_string(sequence_length));
  }
  return tokens / sequence_length;
}

OptimizerSettings resolve_optimizer(const Config& config) {
  OptimizerSettings o;
  const std::vector<double> betas = config.reals("optimizer.betas");
  if (betas.size() != 2 || !(betas[0] < 1) || !(betas[1] < 1)) {
    throw config.error("optimizer.betas", "optimizer.betas must be two numbers from 0 to below 1");
  }
  o.beta1 = betas[0];
  o.beta2 = betas[1];
  o.decay_all = config.text("optimizer.decay_on") == "all";
  o.learning_rate = single_precision(config, "optimizer.learning_rate");
  o.clip = config.is_word("optimizer.clip") ? 0 : single_precision(config, "optimizer.clip");
  if (o.clip == 0) o.clip = std::numeric_limits<double>::infinity();
  const double last = o.final_learning_rate = single_precision(config, "schedule.final_learning_rate");
  const double weight_decay = single_precision(config, "optimizer.weight_decay");
  const double eps = single_precision(config, "optimizer.eps");
  for (int c = 0; c < kParameterClasses; ++c) {
    const std::string prefix = std::string("optimizer.classes.") + to_string(static_cast<ParameterClass>(c)) + ".";
    ClassSettings& own = o.classes[c];
    own.learning_rate = find_single_precision(config, prefix + "learning_rate").value_or(o.learning_rate);
    own.final_learning_rate = own.learning_rate == o.learning_rate
                                  ? last
                                  : (o.learning_rate > 0 ? last / o.learning_rate * own.learning_rate : 0);
    own.weight_decay = find_single_precision(config, prefix + "weight_decay").value_or(weight_decay);
    own.eps = find_single_precision(config, prefix + "eps").value_or(eps);
  }
  return o;
}

CheckpointSettings resolve_checkpoint(const Config& config) {
  CheckpointSettings c;
  c.every_steps = config.find_integer("checkpoint.every_steps").value_or(0);
  c.every_seconds = 60 * config.find_real("checkpoint.every_minutes").value_or(0);
  c.keep_last = config.find_integer("checkpoint.keep_last").value_or(0);
  c.keep_every = config.find_integer("checkpoint.keep_every").value_or(0);
  if (config.has("checkpoint.at")) c.at = config.integers("checkpoint.at");
  return c;
}

SampleSettings resolve_samples(const Config& config) {
  SampleSettings s;
  if (config.has("validate.sample.prompts")) s.prompts = config.texts("validate.sample.prompts");
  s.every_steps = config.find_integer("validate.sample.every_steps").value_or(0);
  s.tokens = config.integer("validate.sample.tokens");
  s.sampling = {.temperature = config.real("validate.sample.temperature"),
                .top_k = config.integer("validate.sample.top_k"),
                .top_p = config.real("validate.sample.top_p")};
  return s;
}

}  // namespace

std::string recompute_mode(int64_t segment) {
  if (segment == 0) return "none";
  if (segment == 1) return "branch";
  if (segment == kSublayersPerBlock) return "block";
  return kEvery + std::to_string(segment / kSublayersPerBlock);
}

std::optional<int64_t> recompute_segment(std::string_view mode) {
  if (mode == "none") return 0;
  if (mode == "branch") return 1;
  if (mode == "block") return kSublayersPerBlock;
  int64_t blocks = 0;
  if (mode.starts_with(kEvery)) {
    const std::string_view count = mode.substr(kEvery.size());
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), blocks);
    if (error != std::errc() || end != count.data() + count.size()) blocks = 0;
  }
  if (blocks < 1 || blocks > kMostModelBlocks) return std::nullopt;
  return kSublayersPerBlock * blocks;
}

ModelConfig given_model(const Config& config) {
  return with_model_keys(config, ModelConfig{});
}

int64_t sequence_length_of(const Config& config) {
  return config.integer("data.sequence_length");
}

ModelConfig resolve_model(const Config& config, const TrainFacts& facts, int64_t sequence_length) {
  ModelConfig model;
  if (facts.init_model) {
    require_same_model(config, *facts.init_model, facts.resumed);
    model = *facts.init_model;
  } else {
    model = with_model_keys(config, ModelConfig{});
    if (model.vocab_size == 0) {
      if (!facts.data_vocab_size) {
        throw Error(ErrorKind::config, "model.vocab_size must be given", "",
                    "the data names no tokenizer to take it from");
      }
      model.vocab_size = *facts.data_vocab_size;
    }
    for (const char* key :
         {"model.hidden_size", "model.intermediate_size", "model.num_hidden_layers", "model.num_attention_heads"}) {
      static_cast<void>(config.integer(key));  // "must be given"
    }
    model = resolved(model);
  }
  if (model.max_position_embeddings == 0) model.max_position_embeddings = sequence_length;
  require_vocabulary(config, model, facts);
  if (sequence_length > model.max_position_embeddings) {
    throw config.error("data.sequence_length", "data.sequence_length " + std::to_string(sequence_length) +
                                                   " is above model.max_position_embeddings " +
                                                   std::to_string(model.max_position_embeddings));
  }
  return model;
}

bool is_length(std::string_view key) {
  return std::find(std::begin(kLengths), std::end(kLengths), key) != std::end(kLengths);
}

std::string length_key(const Config& config) {
  for (const char* key : kLengths) {
    if (config.has(key)) return key;
  }
  return "";
}

void keep_uppermost_length(Config& config) {
  ConfigLayer uppermost = ConfigLayer::initial;
  for (const char* key : kLengths) {
    if (config.is_given(key)) uppermost = std::max(uppermost, config.origin(key).layer);
  }
  for (const char* key : kLengths) {
    if (!config.is_given(key) || config.origin(key).layer == uppermost) continue;
    config.apply_value(key, Json(), {.layer = uppermost, .name = "the length given"});
  }
}

void set_model_keys(Config& config, const ModelConfig& model, const std::string& origin) {
  const auto set = [&](const char* key, const Json& value) {
    config.apply_value(key, value, {.layer = ConfigLayer::flag, .name = origin});
  };
  for (const SizeKey& size : kSizes) set(size.key, model.*size.field != 0 ? Json(model.*size.field) : Json());
  for (const FlagKey& flag : kFlags) set(flag.key, model.*flag.field);
  for (const RealKey& real : kReals) set(real.key, model.*real.field);
  set("model.residual_scheme", model.residual_scheme);
  for (const OptionalRealKey& real : kOptionalReals)
    set(real.key, model.*real.field ? Json(*(model.*real.field)) : Json());
  set("model.norm_type", model.norm_type ? Json(to_string(*model.norm_type)) : Json());
  set("model.final_norm", model.has_final_norm());
}

TrainSettings resolve_settings(const Config& config, const TrainFacts& facts) {
  refuse_if_true(config, "train.stop_on_divergence");
  TrainSettings s;
  s.data.sequence_length = sequence_length_of(config);
  s.model = resolve_model(config, facts, s.data.sequence_length);
  s.init = {.plain = config.text("model.init") == "plain", .layerscale = layerscale_init(config, s.model)};
  s.recompute_segment = resolve_recompute(config);
  s.recompute_is_auto = config.text("train.recompute") == kAuto;
  s.precision = element_type(config, "train.precision");
  s.activations = element_type(config, "train.activations");
  require_stream_dtype(config, s.model);
  s.seed = static_cast<uint64_t>(config.integer("train.seed"));
  s.data.shuffle = config.boolean("data.shuffle");
  s.data.document_mask = config.boolean("data.document_mask");
  if (config.has("data.loss_mask")) s.loss_mask = config.boolean("data.loss_mask");
  s.data.loss_mask = s.loss_mask.value_or(true);
  s.data.seed = s.seed;
  s.data.vocab_size = s.model.vocab_size;
  s.data.eod_id = config.has("data.eod_id") ? config.find_integer("data.eod_id") : facts.data_eod_id;
  s.batch_sequences = resolve_batch(config, s.data.sequence_length);
  require_countable("sequences a step", s.batch_sequences, s.sequence_length(), int64_t{1} << 36);
  s.steps = resolve_steps(config, s);
  require_countable("steps", s.steps, s.tokens_per_step(), int64_t{1} << 53);
  s.micro_batch_is_auto = config.is_word("train.micro_batch_sequences");
  if (!s.micro_batch_is_auto) {
    s.micro_batch_sequences = config.integer("train.micro_batch_sequences");
    if (s.batch_sequences % s.micro_batch_sequences != 0) {
      throw config.error("train.micro_batch_sequences", "a batch of " + std::to_string(s.batch_sequences) +
                                                            " sequences is no multiple of a micro-batch of " +
                                                            std::to_string(s.micro_batch_sequences) + " x 1 process");
    }
    require_countable("sequences a micro-batch", s.micro_batch_sequences, s.sequence_length(),
                      std::numeric_limits<int32_t>::max());
  }
  s.log_every = config.integer("train.log_every");
  s.profile_every = config.find_integer("train.profile_every").value_or(0);
  s.time_limit_seconds = config.find_real("train.time_limit").value_or(0);
  s.memory_limit_bytes = config.find_integer("train.memory_limit").value_or(0);
  s.optimizer = resolve_optimizer(config);
  s.schedule.name = config.text("schedule.name") == "constant" ? ScheduleName::constant : ScheduleName::cosine;
  s.schedule.steps = s.steps;
  s.schedule.warmup_steps = config.integer("schedule.warmup_steps");
  s.checkpoint = resolve_checkpoint(config);
  s.validate.every_steps = config.find_integer("validate.every_steps").value_or(0);
  s.validate.tokens = config.find_integer("validate.tokens").value_or(0);
  s.validate.unigram = config.boolean("validate.unigram");
  s.validate.sample = resolve_samples(config);
  return s;
}

}  // namespace keel
