#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// Every sublayer's row of a scheme, as results of a report and as a table for people.
struct WiringTable {
  Json json;  ///< {"scheme", "blocks", "sublayers", "final_norm", "rows": [{"sublayer", "branch", "inner", ...}]}
  std::string text;  ///< runs of equal rows are one line
};
KEEL_API WiringTable wiring_table_of(const std::string& scheme, int64_t blocks, std::optional<double> alpha,
                                     std::optional<bool> final_norm = {});

}  // namespace keel
