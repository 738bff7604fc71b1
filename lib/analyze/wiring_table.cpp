#include "keel/analyze/wiring_table.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

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

const char* branch_name(QkvNorm qkv) {
  switch (qkv) {
    case QkvNorm::none:
      return "F";
    case QkvNorm::qk_head:
      return "F_qk";
    case QkvNorm::qk_full:
      return "F_qk_full";
    case QkvNorm::qkv_head:
      return "F_qkv";
  }
  return "?";
}

/// What the signs in the formulas of these rows stand for, a line each.
std::string legend(const std::vector<Wiring>& rows, bool skip_is_frozen) {
  const auto any = [&](auto is) { return std::any_of(rows.begin(), rows.end(), is); };
  std::string text;
  if (any([](const Wiring& w) { return w.in_scale == LearnedScale::vector; })) text += "beta: a learned vector\n";
  if (any([](const Wiring& w) { return w.skip_scale == LearnedScale::vector; })) {
    text += skip_is_frozen ? "omega: a vector, constant\n" : "omega: a learned vector\n";
  }
  if (any([](const Wiring& w) { return w.skip_scale == LearnedScale::exponential; })) {
    text += "s: a learned scalar, one a sublayer, starting at 0\n";
  }
  if (any([](const Wiring& w) { return w.branch_scale == LearnedScale::vector; })) text += "lambda: a learned vector\n";
  if (any([](const Wiring& w) { return w.branch_scale == LearnedScale::block; })) {
    text += "lambda: a learned scalar, one a block\n";
  }
  if (any([](const Wiring& w) { return w.qkv == QkvNorm::qk_head; })) {
    text += "F_qk: attention with RMS norms of every head of q and k\n";
  }
  if (any([](const Wiring& w) { return w.qkv == QkvNorm::qk_full; })) {
    text += "F_qk_full: attention with RMS norms of q and k over their full width\n";
  }
  if (any([](const Wiring& w) { return w.qkv == QkvNorm::qkv_head; })) {
    text += "F_qkv: attention with RMS norms of every head of q, k and v\n";
  }
  return text;
}

/// One past the last row from `first` on that repeats the one `period` rows before it.
int64_t end_of_pattern(const std::vector<Wiring>& rows, int64_t first, int64_t period) {
  int64_t l = first + period;
  while (l < std::ssize(rows) && rows[l] == rows[l - period]) ++l;
  return std::min<int64_t>(l, std::ssize(rows));
}

}  // namespace

std::string wiring_formula(const Wiring& w) {
  const auto norm = [](NormKind kind, const std::string& inside) {
    return kind == NormKind::none ? inside : (kind == NormKind::rms ? "RMS(" : "LN(") + inside + ")";
  };
  const auto scaled = [](double scale, LearnedScale learned, const char* sign, const std::string& what) {
    std::string text = scale == 1 ? "" : fmt::format("{:.6g} ", scale);
    if (learned != LearnedScale::none) text += std::string(sign) + " ";
    return text + what;
  };
  const std::string u = scaled(w.ns, w.in_scale, "beta", norm(w.inner, "x"));
  const std::string F = std::string(branch_name(w.qkv)) + "(" + u + ")";
  const std::string f = scaled(w.b, w.branch_scale, "lambda", norm(w.branch, F));
  const char* skip = w.skip_scale == LearnedScale::exponential ? "e^s" : "omega";
  return "x' = " + norm(w.outer, scaled(w.a, w.skip_scale, skip, "x") + " + " + f);
}

WiringTable wiring_table_of(const ModelConfig& config) {
  WiringTable table;
  const std::vector<Wiring> rows = wiring_table(config);
  const bool final_norm = config.has_final_norm();
  table.json["scheme"] = config.residual_scheme;
  table.json["blocks"] = config.num_hidden_layers;
  table.json["sublayers"] = config.sublayers();
  table.json["final_norm"] = final_norm;
  table.json["final_norm_kind"] = to_string(final_norm_kind(config));
  table.json["rows"] = Json::array();
  table.text = fmt::format("{}, {} sublayers, {} norm before the head\n", config.residual_scheme, config.sublayers(),
                           final_norm ? "a" : "no");
  table.text += fmt::format("{:>11}  {:<6}{:<7}{:<6} {}\n", "sublayers", "inner", "branch", "outer", "formula");
  for (int64_t l = 0; l < config.sublayers(); ++l) table.json["rows"].push_back(row_json(l, rows[l]));
  const auto add = [&](const std::string& range, const Wiring& row) {
    table.text += fmt::format("{:>11}  {:<6}{:<7}{:<6} {}\n", range, to_string(row.inner), to_string(row.branch),
                              to_string(row.outer), wiring_formula(row));
  };
  for (int64_t first = 0; first < config.sublayers();) {
    const int64_t same = end_of_pattern(rows, first, 1), pairs = end_of_pattern(rows, first, 2);
    constexpr int64_t kShortest = 4;  // of pairs that are worth a word
    if (same == first + 1 && pairs - first >= kShortest) {
      for (const int64_t l : {first, first + 1}) {
        const int64_t last = pairs - 1 - (pairs - 1 - l) % 2;
        add(fmt::format("{}-{} {}", l, last, branch_kind(l) == BranchKind::attention ? "even" : "odd"), rows[l]);
      }
      first = pairs;
      continue;
    }
    add(same == first + 1 ? std::to_string(first) : fmt::format("{}-{}", first, same - 1), rows[first]);
    first = same;
  }
  table.text += legend(rows, config.admin_frozen);
  return table;
}

}  // namespace keel
