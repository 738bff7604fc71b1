#include "keel/analyze/wiring_table.h"

#include <fmt/format.h>

#include "keel/base/quantity.h"
#include "keel/model/residual_wiring.h"

namespace keel {
namespace {

Json row_json(int64_t l, const Wiring& w) {
  Json row;
  row["sublayer"] = l;
  row["branch_kind"] = l % 2 == 0 ? "attention" : "mlp";
  row["inner"] = to_string(w.inner);
  row["branch"] = to_string(w.branch);
  row["outer"] = to_string(w.outer);
  row["a"] = w.a;
  row["b"] = w.b;
  row["ns"] = w.ns;
  row["qkv"] = to_string(w.qkv);
  row["in_scale"] = to_string(w.in_scale);
  row["skip_scale"] = to_string(w.skip_scale);
  row["branch_scale"] = to_string(w.branch_scale);
  return row;
}

/// x' = N(a x + b F(N(x))) in the words of this row.
std::string formula(const Wiring& w) {
  const auto norm = [](NormKind kind, const std::string& inside) {
    return kind == NormKind::none ? inside : (kind == NormKind::rms ? "RMS(" : "LN(") + inside + ")";
  };
  const auto scaled = [](double scale, const std::string& what) {
    return scale == 1 ? what : format_real(scale) + " " + what;
  };
  const std::string u = scaled(w.ns, norm(w.inner, "x"));
  const std::string f = scaled(w.b, norm(w.branch, "F(" + u + ")"));
  return "x' = " + norm(w.outer, scaled(w.a, "x") + " + " + f);
}

}  // namespace

WiringTable wiring_table_of(const std::string& scheme, int64_t blocks, std::optional<double> alpha,
                            std::optional<bool> final_norm_override) {
  WiringTable table;
  const bool final_norm = final_norm_override.value_or(residual_scheme(scheme).final_norm);
  table.json["scheme"] = scheme;
  table.json["blocks"] = blocks;
  table.json["sublayers"] = 2 * blocks;
  table.json["final_norm"] = final_norm;
  table.json["rows"] = Json::array();
  table.text = fmt::format("{}, {} sublayers, {} norm before the head\n", scheme, 2 * blocks, final_norm ? "a" : "no");
  table.text += fmt::format("{:>12}  {:<7}{:<7}{:<7}{:>9}{:>6}{:>6}  {}\n", "sublayers", "inner", "branch", "outer",
                            "a", "b", "ns", "formula");
  int64_t first = 0;
  for (int64_t l = 0; l < 2 * blocks; ++l) {
    const Wiring row = residual_wiring(scheme, l, blocks, {.alpha = alpha});
    table.json["rows"].push_back(row_json(l, row));
    if (l + 1 < 2 * blocks && residual_wiring(scheme, l + 1, blocks, {.alpha = alpha}) == row) continue;
    const std::string range = first == l ? std::to_string(l) : fmt::format("{}-{}", first, l);
    table.text +=
        fmt::format("{:>12}  {:<7}{:<7}{:<7}{:>9}{:>6}{:>6}  {}\n", range, to_string(row.inner), to_string(row.branch),
                    to_string(row.outer), format_real(row.a), format_real(row.b), format_real(row.ns), formula(row));
    first = l + 1;
  }
  return table;
}

}  // namespace keel
