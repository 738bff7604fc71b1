#pragma once

#include <cstdint>
#include <vector>

#include "keel/base/export.h"
#include "keel/checkpoint/model_folder.h"

namespace keel {

/// The eos_token_id (a number or a list) of a folder's generation_config.json, else of its config.json; empty if
/// neither names one. Error(format) for anything else.
KEEL_API std::vector<int32_t> stop_ids(const ModelFolder& folder);

}  // namespace keel
