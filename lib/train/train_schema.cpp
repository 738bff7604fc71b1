#include <limits>

#include "keel/model/parameters.h"
#include "keel/train/settings.h"

namespace keel {
namespace {

constexpr double kMaxCount = 9e15;  // whole numbers that doubles hold exactly

ConfigKey count(std::string path, std::string initial, std::string help, double minimum = 0, std::string unit = {}) {
  return {.path = std::move(path),
          .type = ConfigType::integer,
          .initial = std::move(initial),
          .unit = std::move(unit),
          .minimum = minimum,
          .maximum = kMaxCount,
          .help = std::move(help)};
}

/// A count that may be written as 10B or 2Mi.
ConfigKey amount(std::string path, std::string unit, std::string help) {
  return {.path = std::move(path),
          .type = ConfigType::amount,
          .unit = std::move(unit),
          .minimum = 1,
          .maximum = 9e18,
          .help = std::move(help)};
}

ConfigKey positive(std::string path, std::string initial, std::string help) {
  return {.path = std::move(path),
          .type = ConfigType::real,
          .initial = std::move(initial),
          .minimum = 0,
          .above_minimum = true,
          .help = std::move(help)};
}

ConfigKey not_negative(std::string path, std::string initial, std::string help) {
  return {.path = std::move(path),
          .type = ConfigType::real,
          .initial = std::move(initial),
          .minimum = 0,
          .help = std::move(help)};
}

ConfigKey boolean(std::string path, std::string initial, std::string help) {
  return {.path = std::move(path), .type = ConfigType::boolean, .initial = std::move(initial), .help = std::move(help)};
}

ConfigKey choice(std::string path, std::string initial, std::vector<std::string> choices, std::string help) {
  return {.path = std::move(path),
          .type = ConfigType::choice,
          .initial = std::move(initial),
          .choices = std::move(choices),
          .help = std::move(help)};
}

void add(std::vector<ConfigKey>& keys, std::vector<ConfigKey> more) {
  for (ConfigKey& key : more) keys.push_back(std::move(key));
}

std::vector<ConfigKey> model_keys() {
  std::vector<std::string> schemes;
  for (const ResidualScheme& scheme : residual_schemes()) schemes.emplace_back(scheme.name);
  return {
      count("model.vocab_size", "", "Rows of embedding and head; by default the tokenizer's.", 1),
      count("model.hidden_size", "", "Width of the stream.", 1),
      count("model.intermediate_size", "", "Width of the feed-forward network.", 1),
      count("model.num_hidden_layers", "", "Blocks; each is two sublayers, attention and feed-forward.", 1),
      count("model.num_attention_heads", "", "Query heads.", 1),
      count("model.num_key_value_heads", "", "Key and value heads; by default as many as query heads.", 1),
      count("model.head_dim", "", "Width of a head; by default hidden_size / num_attention_heads.", 1),
      count("model.max_position_embeddings", "", "Longest sequence; by default data.sequence_length.", 1, "tokens"),
      positive("model.rms_norm_eps", "1e-5", "eps of every norm."),
      positive("model.rope_theta", "10000.0", "Base of the rotary position embedding."),
      not_negative("model.initializer_range", "0.02", "Standard deviation of the initial matrices."),
      boolean("model.tie_word_embeddings", "false", "One matrix for embedding and output head."),
      choice("model.residual_scheme", "\"keel\"", schemes, "Placement of normalisation and skip scale."),
      positive("model.residual_alpha", "", "Skip scale; by default the scheme's own."),
      boolean("model.learnable_alpha", "false", "Learn the skip scales of full forms: alpha exp(s)."),
      {.path = "model.mix_fraction",
       .type = ConfigType::real,
       .minimum = 0,
       .maximum = 1,
       .help = "Share of the blocks that are Post-LN in scheme mix, rounded up; by default 0.25."},
      boolean("model.admin_frozen", "false", "The skip vectors of scheme admin are constants."),
      boolean("model.final_norm", "", "Norm before the head; by default the scheme's."),
      choice("model.norm_type", "", {"rms", "ln"},
             "RMSNorm, or LayerNorm with biases, in place of the scheme's own kind."),
      choice("model.init", "\"scheme\"", {"scheme", "plain"},
             "Initial matrices: N(0, initializer_range^2) with the scheme's own factors, or without."),
      not_negative("model.layerscale_init", "",
                   "Where the branch vectors of scheme layerscale start; by default 0.1, 1e-5 or 1e-6 by depth."),
      choice("model.hidden_act", "\"silu\"", {"silu"}, "Activation of the gate."),
      boolean("model.attention_bias", "false", "Biases in all attention projections, output included (Llama)."),
      boolean("model.qkv_bias", "false", "Biases in the query, key and value projections alone (Qwen2)."),
      boolean("model.mlp_bias", "false", "Biases in the feed-forward projections."),
      boolean("model.qk_norm", "false", "RMSNorm on every query and key head before RoPE (Qwen3)."),
      count("model.sliding_window", "", "Tokens that attention looks back at, its own included; by default all.", 1,
            "tokens"),
  };
}

std::vector<ConfigKey> data_keys() {
  return {
      {.path = "data.path",
       .help = "Training data: a keel-tokenize directory, a Megatron prefix, llm.c or nanoGPT shards; relative to the "
               "current "
               "folder, in a config file too."},
      {.path = "data.val_path", .help = "Validation data, likewise; by default the val shards of data.path."},
      choice("data.format", "\"auto\"", {"auto", "keel", "megatron", "llmc", "nanogpt"},
             "Format of the data where its content can't tell."),
      {.path = "data.sequence_length",
       .type = ConfigType::integer,
       .unit = "tokens",
       .minimum = 1,
       .maximum = std::numeric_limits<int32_t>::max(),
       .help = "Tokens a sequence."},
      boolean("data.shuffle", "true", "Take sequences in a pseudo-random order that the seed determines."),
      boolean("data.document_mask", "false", "Attention never crosses a document; positions restart."),
      {.path = "data.mixture",
       .type = ConfigType::any,
       .help = "Several data sets: [{\"path\": P, \"weight\": W}, ...]."},
      boolean("data.loss_mask", "", "Use the .mask files beside the shards; by default where they exist."),
      count("data.eod_id", "", "End-of-document token of data without a document index."),
  };
}

std::vector<ConfigKey> train_keys() {
  return {
      count("train.steps", "", "Length of the run (or tokens, flops, tokens_per_parameter).", 1, "steps"),
      amount("train.tokens", "tokens", "Length of the run in tokens; rounded up to whole steps."),
      positive("train.flops", "", "Length of the run in floating-point operations."),
      positive("train.tokens_per_parameter", "", "Length of the run in tokens for each parameter."),
      amount("train.batch_tokens", "tokens", "Tokens a step; a multiple of data.sequence_length."),
      count("train.batch_sequences", "", "Sequences a step.", 1, "sequences"),
      {.path = "train.micro_batch_sequences",
       .type = ConfigType::integer,
       .initial = "\"auto\"",
       .unit = "sequences",
       .minimum = 1,
       .maximum = kMaxCount,
       .choices = {"auto"},
       .help = "Sequences that go through the model at once."},
      {.path = "train.recompute",
       .initial = "\"none\"",
       .help =
           "What is computed again in the backward pass, for less memory: none; branch: all but the stream of every "
           "sublayer; block: of every block; every:K: of every K-th block; auto: as little as memory allows."},
      count("train.log_every", "1", "Steps between lines of metrics.jsonl.", 1, "steps"),
      count("train.profile_every", "",
            "Steps between lines of profile.jsonl: gradients and activations of every sublayer; by default none.", 1,
            "steps"),
      count("train.seed", "0", "Determines initial values and the order of the data."),
      boolean("train.stop_on_divergence", "false",
              "Stop when the loss diverges (false in this version; a loss that is not finite always stops)."),
      {.path = "train.time_limit",
       .type = ConfigType::duration,
       .unit = "seconds",
       .minimum = 0,
       .help =
           "Save and stop with exit code 7 so long after the process started; each process does at least one step."},
      {.path = "train.memory_limit",
       .type = ConfigType::size,
       .unit = "bytes",
       .minimum = 1,
       .maximum = 9e18,
       .help = "Memory that the run may use; decides an automatic micro-batch and an automatic recompute."},
      choice("train.precision", "\"fp32\"", {"fp32", "bf16"},
             "Type that branches and products compute with; bf16, on a GPU only, keeps master weights, the residual "
             "stream, sums and gradients of weights in fp32."),
      choice("train.stream_dtype", "\"fp32\"", {"fp32", "bf16"},
             "Type of the residual stream; bf16 is refused for Post-LN-like schemes, and not supported yet."),
      choice("train.activations", "\"fp32\"", {"fp32", "bf16"},
             "Type of what branches that compute in fp32 keep for the backward pass; bf16 takes half of it, rounds "
             "gradients, and leaves the losses of the weights as they are."),
      choice("train.reproducible", "\"threads\"", {"threads"},
             "The same number of threads gives the same bits, however they are scheduled."),
  };
}

std::vector<ConfigKey> optimizer_keys() {
  std::vector<ConfigKey> keys{
      choice("optimizer.name", "\"adamw\"", {"adamw"}, "Optimiser."),
      not_negative("optimizer.learning_rate", "", "Peak learning rate."),
      {.path = "optimizer.betas",
       .type = ConfigType::real_list,
       .initial = "[0.9, 0.95]",
       .minimum = 0,
       .maximum = 1,
       .help = "Decay of AdamW's two averages."},
      positive("optimizer.eps", "1e-8", "AdamW's eps, outside the root."),
      not_negative("optimizer.weight_decay", "0.01", "Decoupled weight decay."),
      choice("optimizer.decay_on", "\"matrices\"", {"matrices", "all"},
             "What decays: every 2-D weight, embedding and head included, or everything."),
      {.path = "optimizer.clip",
       .type = ConfigType::real,
       .initial = "1.0",
       .minimum = 0,
       .choices = {"off"},
       .help = "Limit of the gradient's 2-norm; 0 or off = none."},
      choice("optimizer.parameterization", "\"standard\"", {"standard"}, "How rates follow the width and depth."),
  };
  for (int c = 0; c < kParameterClasses; ++c) {
    const std::string name = to_string(static_cast<ParameterClass>(c));
    add(keys, {not_negative("optimizer.classes." + name + ".learning_rate", "", "Peak learning rate of this class."),
               not_negative("optimizer.classes." + name + ".weight_decay", "", "Weight decay of this class."),
               positive("optimizer.classes." + name + ".eps", "", "eps of this class.")});
  }
  return keys;
}

std::vector<ConfigKey> schedule_and_saving_keys() {
  return {
      choice("schedule.name", "\"cosine\"", {"cosine", "constant"}, "Shape of the learning rate."),
      count("schedule.warmup_steps", "0", "Steps of linear warm-up.", 0, "steps"),
      not_negative("schedule.final_learning_rate", "0.0", "Learning rate of the last step (cosine)."),
      count("checkpoint.every_steps", "", "Steps between checkpoints; one is always written at the end.", 1, "steps"),
      not_negative("checkpoint.every_minutes", "", "Minutes between checkpoints."),
      count("checkpoint.keep_last", "", "Keep the newest so many; by default all.", 1),
      count("checkpoint.keep_every", "", "Besides, keep those of every so many steps.", 1, "steps"),
      {.path = "checkpoint.at",
       .type = ConfigType::integer_list,
       .minimum = 1,
       .maximum = kMaxCount,
       .help = "Besides, save and keep at these steps."},
      count("validate.every_steps", "", "Steps between validations; one always follows the last step.", 1, "steps"),
      amount("validate.tokens", "tokens", "The first so many tokens of the validation data; by default all."),
      boolean("validate.unigram", "false",
              "Also report what token frequencies alone would score; reads all training data once."),
      {.path = "validate.sample.prompts",
       .type = ConfigType::text_list,
       .help =
           "Texts that the model continues while it trains, for RUN/samples.jsonl; the data must have a tokenizer."},
      count("validate.sample.every_steps", "", "Steps between samples; some always follow the last step.", 1, "steps"),
      count("validate.sample.tokens", "64", "Most tokens of a continuation.", 1, "tokens"),
      not_negative("validate.sample.temperature", "0.0",
                   "0 is greedy, so that samples of different steps differ by the model alone."),
      count("validate.sample.top_k", "0", "Draw from so many most probable tokens only; 0 is all."),
      {.path = "validate.sample.top_p",
       .type = ConfigType::real,
       .initial = "1.0",
       .minimum = 0,
       .maximum = 1,
       .above_minimum = true,
       .help = "Draw from the fewest tokens whose probabilities add up to this."},
  };
}

}  // namespace

const ConfigSchema& train_schema() {
  static const ConfigSchema schema = [] {
    std::vector<ConfigKey> keys = model_keys();
    add(keys, data_keys());
    add(keys, train_keys());
    add(keys, optimizer_keys());
    add(keys, schedule_and_saving_keys());
    return ConfigSchema(std::move(keys));
  }();
  return schema;
}

}  // namespace keel
