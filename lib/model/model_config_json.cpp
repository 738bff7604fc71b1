#include "keel/model/model_config_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "keel/base/suggest.h"
#include "keel/model/config_reader.h"

namespace keel {
namespace {

/// What a family assumes where its config.json is silent, as transformers does.
struct Family {
  const char* model_type;
  const char* architecture;
  ModelConfig defaults;
};

ModelConfig llama_defaults() {
  return {.vocab_size = 32000,
          .hidden_size = 4096,
          .intermediate_size = 11008,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .max_position_embeddings = 2048,
          .rms_norm_eps = 1e-6,
          .residual_scheme = "pre"};
}

ModelConfig mistral_defaults() {
  ModelConfig c = llama_defaults();
  c.intermediate_size = 14336;
  c.num_key_value_heads = 8;
  c.max_position_embeddings = 131072;
  c.sliding_window = 4096;
  return c;
}

ModelConfig qwen2_defaults() {
  ModelConfig c = llama_defaults();
  c.vocab_size = 151936;
  c.intermediate_size = 22016;
  c.num_key_value_heads = 32;
  c.max_position_embeddings = 32768;
  c.qkv_bias = true;
  return c;
}

ModelConfig qwen3_defaults() {
  ModelConfig c = qwen2_defaults();
  c.head_dim = 128;
  c.qkv_bias = false;
  c.qk_norm = true;
  return c;
}

ModelConfig olmo2_defaults() {
  ModelConfig c = llama_defaults();
  c.vocab_size = 50304;
  c.rms_norm_eps = 1e-5;
  c.residual_scheme = "olmo2";
  return c;
}

std::span<const Family> families() {
  static const std::array list{Family{"keel", "KeelForCausalLM", {}},
                               Family{"llama", "LlamaForCausalLM", llama_defaults()},
                               Family{"mistral", "MistralForCausalLM", mistral_defaults()},
                               Family{"qwen2", "Qwen2ForCausalLM", qwen2_defaults()},
                               Family{"qwen3", "Qwen3ForCausalLM", qwen3_defaults()},
                               Family{"olmo2", "Olmo2ForCausalLM", olmo2_defaults()}};
  return list;
}

/// Whether the family's config.json has biases of all attention projections as an option.
bool has_attention_bias(const std::string& type) {
  return type == "llama" || type == "qwen3" || type == "olmo2" || type == "keel";
}

/// Whether the family's attention may have a window.
bool has_windows(const std::string& type) {
  return type != "llama" && type != "olmo2";
}

const Family& family_of(const ConfigReader& read) {
  const std::string type = read.text("model_type", "");
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (type == family.model_type) return family;
    names.emplace_back(family.model_type);
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  throw read.error("model_type", type.empty() ? "model_type is missing" : "model_type '" + type + "' is not supported",
                   "known are " + known);
}

/// Keys of other architectures that change what a model computes, with the value (beside null and false) that does not.
const std::array kForeignKeys{std::pair{"attn_logit_softcapping", Json()},
                              std::pair{"final_logit_softcapping", Json()},
                              std::pair{"attention_multiplier", Json()},
                              std::pair{"query_pre_attn_scalar", Json()},
                              std::pair{"embedding_multiplier", Json(1)},
                              std::pair{"residual_multiplier", Json(1)},
                              std::pair{"logits_scaling", Json(1)},
                              std::pair{"logit_scale", Json(1)},
                              std::pair{"clip_qkv", Json()},
                              std::pair{"attention_chunk_size", Json()},
                              std::pair{"no_rope_layers", Json()},
                              std::pair{"num_experts", Json(0)},
                              std::pair{"num_local_experts", Json(0)}};

void refuse_unsupported(const ConfigReader& read) {
  if (const std::string act = read.text("hidden_act", "silu"); act != "silu" && act != "swish") {
    throw read.error("hidden_act", "hidden_act '" + act + "' is not supported", "it runs 'silu'");
  }
  if (read.real("partial_rotary_factor", 1) != 1) {
    throw read.error("partial_rotary_factor", "a partial_rotary_factor other than 1 is not supported");
  }
  for (const auto& [key, neutral] : kForeignKeys) {
    const Json* value = read.find(key);
    if (value != nullptr && *value != neutral && *value != Json(false)) {
      throw read.error(key, std::string(key) + " is not supported", "no model of this family has it");
    }
  }
  if (read.find("quantization_config") != nullptr) {
    throw read.error("quantization_config", "quantised weights are not supported", "give the F32, F16 or BF16 folder");
  }
}

/// The keys of a rotary embedding lie in rope_scaling of older files and in rope_parameters of newer ones, which hold
/// rope_theta too. As in transformers the older name counts where a file has both, and an empty object is none.
struct RopeKeys {
  const ConfigReader& read;
  std::string group;
  const Json* values = nullptr;

  explicit RopeKeys(const ConfigReader& reader) : read(reader) {
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const Json* found = read.find(name);
      if (found == nullptr || values != nullptr) continue;
      if (!found->is_object()) throw read.error(name, std::string(name) + " must be an object");
      if (!found->empty()) group = name, values = found;
    }
  }

  /// Of a file that has such keys.
  double number(const char* key, std::optional<double> absent = {}) const {
    const auto at = values->find(key);
    if (at == values->end() || at->is_null()) {
      if (!absent) throw read.error(group, group + " has no " + key);
      return *absent;
    }
    if (!at->is_number()) throw read.error(group, group + "." + key + " must be a number");
    return at->get<double>();
  }

  std::string type() const {
    const char* key = values->contains("rope_type") ? "rope_type" : "type";
    const bool is_theta_alone = values->contains("rope_theta") && !values->contains("factor");
    const Json type = values->value(key, is_theta_alone ? Json("default") : Json());
    if (!type.is_string()) throw read.error(group, group + " has no rope_type");
    return type;
  }
};

RopeScaling llama3_scaling(const RopeKeys& keys, const ModelConfig& c) {
  const double original =
      keys.read.real("original_max_position_embeddings",
                     keys.number("original_max_position_embeddings", static_cast<double>(c.max_position_embeddings)));
  if (!(original >= 1 && original <= 1e15)) {
    throw keys.read.error(keys.group, keys.group + ".original_max_position_embeddings must be 1 or more");
  }
  return {.kind = RopeScaling::Kind::llama3,
          .factor = keys.number("factor"),
          .low_freq_factor = keys.number("low_freq_factor"),
          .high_freq_factor = keys.number("high_freq_factor"),
          .original_max_position_embeddings = static_cast<int64_t>(original)};
}

void read_rope(const ConfigReader& read, ModelConfig& c) {
  c.rope_theta = read.real("rope_theta", c.rope_theta);
  const RopeKeys keys(read);
  if (keys.values == nullptr) return;
  for (const auto& [key, value] : keys.values->items()) {
    if (value.is_object()) throw read.error(keys.group, keys.group + " by layer type is not supported");
  }
  c.rope_theta = keys.number("rope_theta", c.rope_theta);
  if (keys.number("partial_rotary_factor", 1) != 1) {
    throw read.error(keys.group, "a partial_rotary_factor other than 1 is not supported");
  }
  const std::string type = keys.type();
  if (type == "linear") c.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = keys.number("factor")};
  if (type == "llama3") c.rope_scaling = llama3_scaling(keys, c);
  if (type != "default" && type != "linear" && type != "llama3") {
    throw read.error(keys.group, "rope_type '" + type + "' is not supported", "it runs default, linear and llama3");
  }
}

/// layer_types, one of "full_attention" and "sliding_attention" a block; empty if the file has none.
std::vector<bool> read_layer_types(const ConfigReader& read, int64_t blocks) {
  std::vector<bool> sliding;
  const Json* types = read.find("layer_types");
  if (types == nullptr) return sliding;
  if (!types->is_array()) throw read.error("layer_types", "layer_types must be a list");
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      throw read.error("layer_types", "layer_types: " + json_text(type) + " is not supported",
                       "it runs full_attention and sliding_attention");
    }
    sliding.push_back(type == "sliding_attention");
  }
  if (std::ssize(sliding) != blocks) {
    throw read.error("layer_types", "layer_types has " + std::to_string(sliding.size()) + " entries for " +
                                        std::to_string(blocks) + " blocks");
  }
  return sliding;
}

void read_window(const ConfigReader& read, const std::string& type, ModelConfig& c) {
  if (read.has("sliding_window")) c.sliding_window = read.integer("sliding_window", 0);
  c.sliding_layers = read_layer_types(read, c.num_hidden_layers);
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (!has_windows(type) || (qwen && !read.boolean("use_sliding_window", false))) c.sliding_window = 0;
  if (qwen && c.sliding_window == 0 && read.boolean("use_sliding_window", false) && !read.has("sliding_window")) {
    c.sliding_window = 4096;
  }
  if (qwen && c.sliding_window > 0 && c.sliding_layers.empty()) {
    if (c.num_hidden_layers > kMostModelBlocks) return;  // resolved() refuses it
    const int64_t first = read.integer("max_window_layers", 28);
    for (int64_t block = 0; block < c.num_hidden_layers; ++block) c.sliding_layers.push_back(block >= first);
  }
  const bool any = std::find(c.sliding_layers.begin(), c.sliding_layers.end(), true) != c.sliding_layers.end();
  if (any && c.sliding_window == 0 && has_windows(type)) {
    throw read.error("layer_types", "layer_types names sliding_attention, but no sliding_window is set");
  }
  if (c.sliding_window == 0) c.sliding_layers.clear();
}

void read_biases(const ConfigReader& read, const std::string& type, ModelConfig& c) {
  if (has_attention_bias(type)) c.attention_bias = read.boolean("attention_bias", false);
  if (type == "llama" || type == "keel") c.mlp_bias = read.boolean("mlp_bias", false);
  if (type != "keel") return;
  c.qkv_bias = read.boolean("qkv_bias", false);
  c.qk_norm = read.boolean("qk_norm", false);
}

/// A size that null asks to be derived from others.
void read_derived(const ConfigReader& read, const std::string& key, int64_t& size) {
  if (!read.has(key)) return;
  size = read.integer(key, 0);
  if (size < 1 && read.find(key) != nullptr) throw read.error(key, key + " must be 1 or more");
}

void read_sizes(const ConfigReader& read, ModelConfig& c) {
  c.vocab_size = read.integer("vocab_size", c.vocab_size);
  c.hidden_size = read.integer("hidden_size", c.hidden_size);
  c.intermediate_size = read.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = read.integer("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = read.integer("num_attention_heads", c.num_attention_heads);
  read_derived(read, "num_key_value_heads", c.num_key_value_heads);
  read_derived(read, "head_dim", c.head_dim);
  c.max_position_embeddings = read.integer("max_position_embeddings", c.max_position_embeddings);
  c.rms_norm_eps = read.real("rms_norm_eps", c.rms_norm_eps);
  c.initializer_range = read.real("initializer_range", c.initializer_range);
  c.tie_word_embeddings = read.boolean("tie_word_embeddings", false);
}

void read_residual(const ConfigReader& read, ModelConfig& c) {
  c.residual_scheme = read.text("residual_scheme", c.residual_scheme);
  if (read.find("residual_alpha") != nullptr) c.residual_alpha = read.real("residual_alpha", 0);
  if (read.find("final_norm") != nullptr) c.final_norm = read.boolean("final_norm", false);
  c.learnable_alpha = read.boolean("learnable_alpha", false);
  if (read.find("norm_type") != nullptr) c.norm_type = norm_kind(read.text("norm_type", ""));
  // Options of other schemes may stand in the file.
  const ResidualScheme& scheme = residual_scheme(c.residual_scheme);
  if (scheme.accepts_fraction && read.find("mix_fraction") != nullptr) c.mix_fraction = read.real("mix_fraction", 0);
  if (scheme.profiled_skip) c.admin_frozen = read.boolean("admin_frozen", false);
}

Json rope_scaling_json(const RopeScaling& s) {
  switch (s.kind) {
    case RopeScaling::Kind::none:
      return nullptr;
    case RopeScaling::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", s.factor}};
    case RopeScaling::Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", s.factor},
              {"low_freq_factor", s.low_freq_factor},
              {"high_freq_factor", s.high_freq_factor},
              {"original_max_position_embeddings", s.original_max_position_embeddings}};
  }
  return nullptr;
}

Json layer_types_json(const ModelConfig& c) {
  Json types = Json::array();
  for (int64_t block = 0; block < c.num_hidden_layers; ++block) {
    types.push_back(c.window(block) > 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

void write_attention_options(const std::string& type, const ModelConfig& c, Json& json) {
  if (has_attention_bias(type)) json["attention_bias"] = c.attention_bias;
  if (type == "llama" || type == "keel") json["mlp_bias"] = c.mlp_bias;
  if (type == "keel") {
    json["qkv_bias"] = c.qkv_bias;
    json["qk_norm"] = c.qk_norm;
  }
  if (!has_windows(type)) return;
  json["sliding_window"] = c.sliding_window > 0 ? Json(c.sliding_window) : Json();
  if (type == "qwen2" || type == "qwen3") json["use_sliding_window"] = c.sliding_window > 0;
  if (!c.sliding_layers.empty() || type == "qwen2" || type == "qwen3") json["layer_types"] = layer_types_json(c);
}

}  // namespace

std::string hugging_face_family(const ModelConfig& c) {
  const bool plain = c.norm_type.value_or(NormKind::rms) == NormKind::rms && c.has_final_norm();
  const bool own_head_dim = c.head_dim * c.num_attention_heads != c.hidden_size;
  if (plain && c.residual_scheme == "olmo2") {
    return c.qkv_bias || c.mlp_bias || c.sliding_window > 0 || own_head_dim ? "keel" : "olmo2";
  }
  if (!plain || c.residual_scheme != "pre") return "keel";
  const bool opens_as_llama = c.hidden_size % c.num_attention_heads == 0;  // LlamaConfig refuses others
  if (c.qk_norm) return c.qkv_bias || c.mlp_bias ? "keel" : "qwen3";
  if (c.qkv_bias && !c.attention_bias) return c.mlp_bias || own_head_dim ? "keel" : "qwen2";
  if (c.sliding_window == 0) return opens_as_llama ? "llama" : "keel";
  return c.attention_bias || c.mlp_bias || !c.sliding_layers.empty() ? "keel" : "mistral";
}

Json model_config_json(const ModelConfig& c, const std::string& model_type) {
  Json json;
  for (const Family& family : families()) {
    if (model_type == family.model_type) json["architectures"] = {family.architecture};
  }
  json["model_type"] = model_type;
  json["vocab_size"] = c.vocab_size;
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["num_hidden_layers"] = c.num_hidden_layers;
  json["num_attention_heads"] = c.num_attention_heads;
  json["num_key_value_heads"] = c.num_key_value_heads;
  if (model_type != "qwen2" && model_type != "olmo2") json["head_dim"] = c.head_dim;
  json["max_position_embeddings"] = c.max_position_embeddings;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = c.rms_norm_eps;
  json["rope_theta"] = c.rope_theta;
  json["rope_scaling"] = rope_scaling_json(c.rope_scaling);
  json["initializer_range"] = c.initializer_range;
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  write_attention_options(model_type, c, json);
  if (model_type == "keel") {
    json["residual_scheme"] = c.residual_scheme;
    json["residual_alpha"] = c.residual_alpha ? Json(*c.residual_alpha) : Json();
    json["final_norm"] = c.final_norm ? Json(*c.final_norm) : Json();
    if (c.learnable_alpha) json["learnable_alpha"] = true;
    if (c.mix_fraction) json["mix_fraction"] = *c.mix_fraction;
    if (c.norm_type) json["norm_type"] = to_string(*c.norm_type);
    if (c.admin_frozen) json["admin_frozen"] = true;
  }
  json["torch_dtype"] = "float32";
  return json;
}

ModelConfig parse_model_config(std::string text, const std::string& name) {
  const JsonDocument document(std::move(text), name, ErrorKind::format);
  const ConfigReader read(document);
  const Family& family = family_of(read);
  const std::string type = family.model_type;
  refuse_unsupported(read);
  ModelConfig c = family.defaults;
  read_sizes(read, c);
  read_rope(read, c);
  read_biases(read, type, c);
  read_window(read, type, c);
  try {
    if (type == "keel") read_residual(read, c);
    return resolved(c);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::format) throw;
    throw Error(ErrorKind::format, error.what(), name);
  }
}

}  // namespace keel
