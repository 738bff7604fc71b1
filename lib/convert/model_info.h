#pragma once

#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/checkpoint/model_folder.h"

namespace keel {

/// What a model folder holds: {"path", "model_type", "residual_scheme", "sublayers", "config": {..}, "parameters",
/// "tensors", "bytes", "dtypes": {"F32": tensors}, "tokenizer", "files": [..]}. The tensors are checked against the
/// config first, with the errors of model_tensors().
KEEL_API Json model_info(const ModelFolder& folder);
/// The same for people.
KEEL_API std::string model_info_text(const Json& info);

}  // namespace keel
