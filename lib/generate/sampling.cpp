#include "keel/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/base/error.h"

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

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) candidates.push_back({logits[i], static_cast<int32_t>(i)});
  }
  if (candidates.empty()) {
    throw Error(ErrorKind::format, "no logit is finite: the model's weights or its input are broken");
  }
  if (options.temperature == 0) return std::min_element(candidates.begin(), candidates.end())->id;

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
