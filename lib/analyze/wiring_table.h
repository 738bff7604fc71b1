#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/model/model_config.h"

namespace keel {

/// Every sublayer's row of a model, as results of a report and as a table for people.
struct WiringTable {
  Json json;  ///< {"scheme", "blocks", "sublayers", "final_norm", "rows": [{"sublayer", "branch", "inner", ...}]}
  std::string text;  ///< at most 80 columns wide; runs of equal rows are one line
};

/// Of the config only what decides the wiring is looked at: the scheme, the blocks and what may be set beside it.
/// Errors as residual_wiring gives them.
KEEL_API WiringTable wiring_table_of(const ModelConfig& config);

/// What a sublayer computes, in one line: "x' = RMS(64 e^s x + F_qk(RMS(x)))".
///   e^s learned skip scale, omega, beta, lambda learned vectors (lambda of a block: a scalar);
///   F_qk, F_qkv norms of q, k (and v) per head, F_qk_full over their full width
KEEL_API std::string wiring_formula(const Wiring& wiring);

}  // namespace keel
