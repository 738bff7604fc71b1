#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "keel/base/export.h"

namespace keel {

/// Aggregates and their standard errors, as lm-evaluation-harness computes them (its api/metrics.py), in the same order
/// of operations. Of no value at all: NaN.

/// sum(x) / n, added from left to right.
KEEL_API double mean_of(std::span<const double> values);
/// sqrt(sum((x - mean)^2) / (n - 1)) / sqrt(n); none for n < 2.
KEEL_API std::optional<double> mean_standard_error(std::span<const double> values);

/// exp(-mean): perplexity per item, of log-likelihoods in nats.
KEEL_API double perplexity_of(std::span<const double> log_likelihoods);
/// Standard deviation (n - 1) of perplexity_of over `iterations` samples drawn with replacement, in blocks of 1000;
/// block i draws with PythonRandom(i), so the result is a function of the values alone. None for iterations == 0 or
/// fewer than two values. Stopped after a signal.
KEEL_API std::optional<double> perplexity_bootstrap(std::span<const double> log_likelihoods, int64_t iterations,
                                                    int threads);

/// One task's share in a group.
struct GroupMember {
  double value = 0;
  std::optional<double> standard_error;
  int64_t count = 0;  ///< rows
};
/// sum(m_i n_i) / sum(n_i).
KEEL_API double pooled_mean(std::span<const GroupMember> members);
/// sqrt([sum((n_i - 1) se_i^2 n_i) / (sum n_i - members)] / sum n_i); none if a member has none.
KEEL_API std::optional<double> pooled_standard_error(std::span<const GroupMember> members);

}  // namespace keel
