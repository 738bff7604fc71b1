#pragma once

#include <array>
#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/model/model_config.h"

namespace keel {

/// The model_type of config.json files: keel, or the family of Hugging Face models that a config is exactly one of
/// (scheme pre, or olmo2 for olmo2, with its final norm, RMS norms and nothing that the family does not know): llama,
/// mistral, qwen2, qwen3, olmo2.
KEEL_API std::string hugging_face_family(const ModelConfig& config);

/// Options of residual schemes in Keel-family files; absent, null or false: the scheme's own.
inline constexpr std::array kSchemeOptions{"residual_alpha", "learnable_alpha", "mix_fraction",
                                           "norm_type",      "admin_frozen",    "final_norm"};

/// config.json of a model folder of that family (hugging_face_family(config), or keel for any). A Keel-family file has
/// Llama's keys, the options of the other families, the residual scheme and its options.
KEEL_API Json model_config_json(const ModelConfig& config, const std::string& model_type = "keel");

/// Reads config.json of any of these families. Absent keys have the family's defaults, unknown ones and those of other
/// schemes are ignored; what changes the numbers and is not run here (another model_type or activation, RoPE scaling of
/// another kind, quantised weights, ...) is refused by name: Error(format) with file:line:column. `name` is the file's
/// name for messages. The result is resolved().
KEEL_API ModelConfig parse_model_config(std::string text, const std::string& name);

}  // namespace keel
