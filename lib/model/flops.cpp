#include "keel/model/flops.h"

#include <algorithm>
#include <vector>

namespace keel {
namespace {

double branch_flops(const ModelConfig& config, int64_t sequence_length, int64_t sublayers) {
  double sum = 0;
  for (int64_t l = 0; l < sublayers; ++l) sum += branch_flops_per_token(config, l, sequence_length);
  return sum;
}

double output_flops(const ModelConfig& c, int64_t l) {
  const int64_t inputs = branch_kind(l) == BranchKind::mlp ? c.intermediate_size : c.query_size();
  return 2 * static_cast<double>(c.hidden_size) * static_cast<double>(inputs);
}

}  // namespace

double branch_flops_per_token(const ModelConfig& c, int64_t l, int64_t sequence_length) {
  const auto d = static_cast<double>(c.hidden_size), q = static_cast<double>(c.query_size());
  if (branch_kind(l) == BranchKind::mlp) return 2 * d * 3 * static_cast<double>(c.intermediate_size);
  const auto T = static_cast<double>(sequence_length);
  const double window = c.window(l / 2) > 0 ? std::min(T, static_cast<double>(c.window(l / 2))) : T;
  const double keys = window - window * (window - 1) / (2 * T);  // of an average query
  return 2 * d * 2 * (q + static_cast<double>(c.key_value_size())) + 2 * 2 * keys * q;
}

double train_flops_per_token(const ModelConfig& c, int64_t sequence_length) {
  const double head = 2 * static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  return 3 * (branch_flops(c, sequence_length, c.sublayers()) + head);
}

double recompute_flops_per_token(const ModelConfig& c, int64_t sequence_length, int64_t segment) {
  if (segment == 0) return 0;
  const int64_t again = c.sublayers() - segment;
  double flops = branch_flops(c, sequence_length, again);
  const std::vector<Wiring> wiring = wiring_table(c);
  for (int64_t end = again; end > 0; end -= segment) {
    if (!wiring[end - 1].keeps_branch()) flops -= output_flops(c, end - 1);
  }
  return flops;
}

}  // namespace keel
