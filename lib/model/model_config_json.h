#pragma once

#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/model/model_config.h"

namespace keel {

/// config.json of a Keel-family folder: Llama's keys, "model_type": "keel", the residual scheme and its options.
KEEL_API Json model_config_json(const ModelConfig& config);

/// Reads such a file. Keys of other schemes and unknown ones are ignored; a setting that this version does not run
/// (another model_type, biases, another activation, RoPE scaling, ...) is refused by name: Error(format) with
/// file:line:column. `name` is the file's name for messages. The result is resolved().
KEEL_API ModelConfig parse_model_config(std::string text, const std::string& name);

}  // namespace keel
