#pragma once

#include <string_view>

#include "keel/base/json.h"
#include "keel/model/model_config.h"

namespace keel {

/// The Python files with which transformers opens a Keel-family folder; python/*.py, built in.
std::string_view configuration_keel_py();
std::string_view modeling_keel_py();

/// Adds to a config.json what they read: auto_map, the wiring of every sublayer, and the final norm spelled out.
void add_modeling_keys(const ModelConfig& config, Json& json);

}  // namespace keel
