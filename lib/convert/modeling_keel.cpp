#include "keel/convert/modeling_keel.h"

#include <nlohmann/json.hpp>

namespace keel {

void add_modeling_keys(const ModelConfig& config, Json& json) {
  json["auto_map"] = {{"AutoConfig", "configuration_keel.KeelConfig"},
                      {"AutoModelForCausalLM", "modeling_keel.KeelForCausalLM"}};
  json["final_norm"] = config.has_final_norm();
  Json rows = Json::array();
  for (const Wiring& wiring : wiring_table(config)) {
    rows.push_back(
        {{"inner", to_string(wiring.inner)}, {"outer", to_string(wiring.outer)}, {"a", wiring.a}, {"b", wiring.b}});
  }
  json["residual_wiring"] = std::move(rows);
}

}  // namespace keel
