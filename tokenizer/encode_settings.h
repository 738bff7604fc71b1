#pragma once

#include "keel/base/config.h"
#include "keel/base/export.h"
#include "keel/tokenizer/encode.h"

namespace keel {

/// The settings of `keel-tokenize encode`, named as its options: "text_field" is --text-field.
KEEL_API const ConfigSchema& encode_schema();

/// Error(config) for what cannot be, with where it was said. `cores` workers when the config says 0.
KEEL_API EncodeOptions resolve_encode_options(const Config& config, int cores);

}  // namespace keel
