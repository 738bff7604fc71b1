#include "keel/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/base/signals.h"
#include "keel/eval/python_random.h"
#include "keel/kernels/common/parallel.h"

namespace keel {
namespace {

constexpr int64_t kBlock = 1000;

double sum_of(std::span<const double> values) {
  double sum = 0;
  for (double x : values) sum += x;
  return sum;
}

/// Sample standard deviation.
double deviation_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (double x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace

double mean_of(std::span<const double> values) {
  return sum_of(values) / static_cast<double>(values.size());
}

std::optional<double> mean_standard_error(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  return deviation_of(values) / std::sqrt(static_cast<double>(values.size()));
}

double perplexity_of(std::span<const double> log_likelihoods) {
  return std::exp(-mean_of(log_likelihoods));
}

std::optional<double> perplexity_bootstrap(std::span<const double> log_likelihoods, int64_t iterations, int threads) {
  if (iterations <= 0 || log_likelihoods.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(log_likelihoods.size());
  std::vector<double> replicates(iterations);
  const int64_t blocks = (iterations + kBlock - 1) / kBlock;
  ThreadTeam team(threads);
  for_parts({&team, threads}, blocks, [&](int64_t block, int) {
    if (stop_requested()) return;
    PythonRandom random(static_cast<uint64_t>(block));
    for (int64_t i = block * kBlock; i < std::min(iterations, (block + 1) * kBlock); ++i) {
      double sum = 0;
      for (size_t k = 0; k < log_likelihoods.size(); ++k) {
        sum += log_likelihoods[static_cast<size_t>(random.uniform() * n)];
      }
      replicates[i] = std::exp(-(sum / n));
    }
  });
  throw_if_stopped();
  return deviation_of(replicates);
}

double pooled_mean(std::span<const GroupMember> members) {
  double sum = 0;
  int64_t count = 0;
  for (const GroupMember& member : members) {
    sum += member.value * static_cast<double>(member.count);
    count += member.count;
  }
  return sum / static_cast<double>(count);
}

std::optional<double> pooled_standard_error(std::span<const GroupMember> members) {
  double sum = 0;
  int64_t count = 0;
  for (const GroupMember& member : members) {
    if (!member.standard_error) return std::nullopt;
    const auto n = static_cast<double>(member.count);
    sum += (n - 1) * (*member.standard_error * *member.standard_error) * n;
    count += member.count;
  }
  const double variance = sum / static_cast<double>(count - static_cast<int64_t>(members.size()));
  return std::sqrt(variance / static_cast<double>(count));
}

}  // namespace keel
