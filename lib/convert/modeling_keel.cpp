#include "keel/convert/modeling_keel.h"

#include <nlohmann/json.hpp>

namespace keel {

namespace {

/// The fields that differ from a Wiring's defaults.
Json wiring_json(const Wiring& wiring) {
  const Wiring plain;
  Json row = Json::object();
  const auto put = [&](const char* name, auto Wiring::*field) {
    if (wiring.*field == plain.*field) return;
    if constexpr (std::is_same_v<decltype(field), double Wiring::*>) {
      row[name] = wiring.*field;
    } else {
      row[name] = to_string(wiring.*field);
    }
  };
  put("inner", &Wiring::inner);
  put("branch", &Wiring::branch);
  put("outer", &Wiring::outer);
  put("a", &Wiring::a);
  put("b", &Wiring::b);
  put("ns", &Wiring::ns);
  put("qkv", &Wiring::qkv);
  put("in_scale", &Wiring::in_scale);
  put("skip_scale", &Wiring::skip_scale);
  put("branch_scale", &Wiring::branch_scale);
  return row;
}

}  // namespace

void add_modeling_keys(const ModelConfig& config, Json& json) {
  json["auto_map"] = {{"AutoConfig", "configuration_keel.KeelConfig"},
                      {"AutoModelForCausalLM", "modeling_keel.KeelForCausalLM"}};
  json["final_norm"] = config.has_final_norm();
  if (config.has_final_norm()) json["final_norm_type"] = to_string(final_norm_kind(config));
  Json rows = Json::array();
  for (const Wiring& wiring : wiring_table(config)) rows.push_back(wiring_json(wiring));
  json["residual_wiring"] = std::move(rows);
}

}  // namespace keel
