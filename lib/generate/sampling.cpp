#include "keel/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace keel {
namespace {

struct Candidate {
  float logit;
  int32_t id;
  bool operator<(const Candidate& other) const {  // the better one first
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

/// The fewest of the sorted candidates whose weights reach top_p of their sum.
size_t nucleus(const std::vector<double>& weights, double top_p) {
  double total = 0, sum = 0;
  for (double w : weights) total += w;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= top_p * total) return i + 1;
  }
  return weights.size();
}

bool all_finite(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
}

}  // namespace

int64_t sampling_bytes(int64_t vocab_size) {
  return vocab_size * static_cast<int64_t>(sizeof(Candidate) + sizeof(double));
}

std::optional<int32_t> sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  if (logits.empty() || !all_finite(logits)) return std::nullopt;
  if (options.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates.push_back({logits[i], static_cast<int32_t>(i)});

  // Without a cut no order is needed: the draw goes over the ids.
  const bool cuts = options.top_p < 1 || (options.top_k > 0 && options.top_k < static_cast<int64_t>(candidates.size()));
  size_t kept = candidates.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  if (cuts) {
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(kept), candidates.end());
    candidates.resize(kept);
  }
  double largest = candidates[0].logit;
  for (const Candidate& c : candidates) largest = std::max(largest, static_cast<double>(c.logit));
  std::vector<double> weights;
  weights.reserve(candidates.size());
  for (const Candidate& c : candidates) weights.push_back(std::exp((c.logit - largest) / options.temperature));
  if (options.top_p < 1) weights.resize(nucleus(weights, options.top_p));
  double total = 0, sum = 0;
  for (double w : weights) total += w;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (uniform * total < sum) return candidates[i].id;
  }
  return candidates[weights.size() - 1].id;
}

}  // namespace keel
