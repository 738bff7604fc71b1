#include "keel/convert/model_info.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/quantity.h"
#include "keel/convert/convert.h"
#include "keel/model/model_config_json.h"

namespace keel {

namespace {

/// The options that a config sets, as "residual_alpha 2.5, learnable_alpha".
std::string options_of(const Json& config) {
  std::string options;
  std::vector<const char*> keys(kSchemeOptions.begin(), kSchemeOptions.end());
  keys.insert(keys.end(), {"qk_norm", "qkv_bias", "attention_bias", "mlp_bias", "sliding_window"});
  for (const char* key : keys) {
    const Json value = config.value(key, Json());
    const bool is_default = value.is_null() || (value == Json(false) && key != std::string_view("final_norm"));
    if (is_default) continue;
    options += fmt::format("{}{}", options.empty() ? "" : ", ", key);
    if (value.is_string()) options += " " + value.get<std::string>();
    if (value.is_number() || value == Json(false)) options += " " + json_text(value);
  }
  return options;
}

}  // namespace

Json model_info(const ModelFolder& folder) {
  const ModelTensors tensors = model_tensors(folder);
  const Json config = parse_json(folder.config_text, folder.config_path, ErrorKind::format);
  Json dtypes = Json::object();
  int64_t bytes = 0;
  for (const TensorSet::Place& place : tensors.places) {
    const std::string type(to_string(place.tensor->type));
    dtypes[type] = dtypes.value(type, int64_t{0}) + 1;
    bytes += place.tensor->end - place.tensor->begin;
  }
  Json files = Json::array();
  for (const SafetensorsFile& file : folder.tensors.files()) {
    files.push_back({{"path", file.path()}, {"bytes", file.bytes()}});
  }
  Json info;
  info["path"] = folder.path;
  info["model_type"] = config["model_type"];
  info["residual_scheme"] = tensors.config.residual_scheme;
  info["sublayers"] = tensors.config.sublayers();
  info["exports_as"] = hugging_face_family(tensors.config);
  info["parameters"] = count_parameters(tensors.config).total;
  info["tensors"] = static_cast<int64_t>(tensors.places.size());
  info["bytes"] = bytes;
  info["dtypes"] = dtypes;
  info["tokenizer"] = folder.tokenizer_path.empty() ? Json() : Json(folder.tokenizer_path);
  info["files"] = files;
  info["config"] = model_config_json(tensors.config);
  return info;
}

std::string model_info_text(const Json& info) {
  std::string dtypes;
  for (const auto& [type, count] : info["dtypes"].items()) {
    dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", count.get<int64_t>(), type);
  }
  const Json& c = info["config"];
  const auto number = [&](const char* key) { return c[key].get<int64_t>(); };
  std::string text;
  const auto row = [&](const char* name, const std::string& value) { text += fmt::format("{:<14} {}\n", name, value); };
  row("model", info["path"].get<std::string>());
  row("architecture", fmt::format("{}, residual scheme {}, {} sublayers ({} blocks)",
                                  info["model_type"].get<std::string>(), info["residual_scheme"].get<std::string>(),
                                  info["sublayers"].get<int64_t>(), number("num_hidden_layers")));
  if (const std::string options = options_of(c); !options.empty()) row("options", options);
  row("width", fmt::format("{}, feed-forward {}, {} heads of {} ({} for keys and values)", number("hidden_size"),
                           number("intermediate_size"), number("num_attention_heads"), number("head_dim"),
                           number("num_key_value_heads")));
  row("vocabulary", fmt::format("{} tokens{}", number("vocab_size"),
                                c["tie_word_embeddings"].get<bool>() ? ", output head tied to the embedding" : ""));
  row("positions", fmt::format("{}", number("max_position_embeddings")));
  row("parameters",
      fmt::format("{} ({})", info["parameters"].get<int64_t>(), format_count(info["parameters"].get<double>())));
  row("weights", fmt::format("{} tensors ({}), {}", info["tensors"].get<int64_t>(), dtypes,
                             format_bytes(info["bytes"].get<int64_t>())));
  row("tokenizer", info["tokenizer"].is_null() ? "none" : info["tokenizer"].get<std::string>());
  row("exports as", info["exports_as"].get<std::string>());
  return text;
}

}  // namespace keel
