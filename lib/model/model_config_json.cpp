#include "keel/model/model_config_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"

namespace keel {
namespace {

/// Typed look-ups in a config.json with errors that say where.
class Reader {
 public:
  explicit Reader(const JsonDocument& document) : document_(document) {
    if (!document.root().is_object()) throw document.error("", "a model's config.json must be an object");
  }

  const Json* find(const std::string& key) const {
    const auto at = document_.root().find(key);
    return at == document_.root().end() || at->is_null() ? nullptr : &*at;
  }
  int64_t integer(const std::string& key, int64_t absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
      throw error(key, key + " must be a whole number");
    }
    return value->get<int64_t>();
  }
  double real(const std::string& key, double absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number()) throw error(key, key + " must be a number");
    return value->get<double>();
  }
  bool boolean(const std::string& key, bool absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) throw error(key, key + " must be true or false");
    return value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) throw error(key, key + " must be a text");
    return value->get<std::string>();
  }
  Error error(const std::string& key, const std::string& message, const std::string& hint = {}) const {
    return document_.error(std::string("/").append(pointer_part(key)), message, hint);
  }

 private:
  const JsonDocument& document_;
};

void refuse_unsupported(const Reader& read) {
  const std::string type = read.text("model_type", "");
  if (type != "keel") {
    throw read.error("model_type", "model_type '" + type + "' is not supported by this version", "it reads 'keel'");
  }
  if (const std::string act = read.text("hidden_act", "silu"); act != "silu") {
    throw read.error("hidden_act", "hidden_act '" + act + "' is not supported", "it runs 'silu'");
  }
  for (const char* key : {"attention_bias", "mlp_bias", "qk_norm", "use_sliding_window"}) {
    if (read.boolean(key, false)) throw read.error(key, std::string(key) + " true is not supported by this version");
  }
  for (const char* key : {"rope_scaling", "rope_parameters", "sliding_window"}) {
    if (read.find(key) != nullptr) throw read.error(key, std::string(key) + " is not supported by this version");
  }
}

}  // namespace

Json model_config_json(const ModelConfig& c) {
  Json json;
  json["architectures"] = {"KeelForCausalLM"};
  json["model_type"] = "keel";
  json["vocab_size"] = c.vocab_size;
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["num_hidden_layers"] = c.num_hidden_layers;
  json["num_attention_heads"] = c.num_attention_heads;
  json["num_key_value_heads"] = c.num_key_value_heads;
  json["head_dim"] = c.head_dim;
  json["max_position_embeddings"] = c.max_position_embeddings;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = c.rms_norm_eps;
  json["rope_theta"] = c.rope_theta;
  json["initializer_range"] = c.initializer_range;
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  json["attention_bias"] = false;
  json["residual_scheme"] = c.residual_scheme;
  json["residual_alpha"] = c.residual_alpha ? Json(*c.residual_alpha) : Json();
  json["final_norm"] = c.final_norm ? Json(*c.final_norm) : Json();
  json["torch_dtype"] = "float32";
  return json;
}

ModelConfig parse_model_config(std::string text, const std::string& name) {
  const JsonDocument document(std::move(text), name, ErrorKind::format);
  const Reader read(document);
  refuse_unsupported(read);
  ModelConfig c;
  c.vocab_size = read.integer("vocab_size", 0);
  c.hidden_size = read.integer("hidden_size", 0);
  c.intermediate_size = read.integer("intermediate_size", 0);
  c.num_hidden_layers = read.integer("num_hidden_layers", 0);
  c.num_attention_heads = read.integer("num_attention_heads", 0);
  c.num_key_value_heads = read.integer("num_key_value_heads", 0);
  c.head_dim = read.integer("head_dim", 0);
  c.max_position_embeddings = read.integer("max_position_embeddings", 0);
  c.rms_norm_eps = read.real("rms_norm_eps", c.rms_norm_eps);
  c.rope_theta = read.real("rope_theta", c.rope_theta);
  c.initializer_range = read.real("initializer_range", c.initializer_range);
  c.tie_word_embeddings = read.boolean("tie_word_embeddings", false);
  c.residual_scheme = read.text("residual_scheme", c.residual_scheme);
  if (read.find("residual_alpha") != nullptr) c.residual_alpha = read.real("residual_alpha", 0);
  if (read.find("final_norm") != nullptr) c.final_norm = read.boolean("final_norm", false);
  try {
    return resolved(c);
  } catch (const Error& error) {
    throw Error(ErrorKind::format, error.what(), name);
  }
}

}  // namespace keel
