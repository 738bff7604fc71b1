#include "keel/generate/sampling.h"

#include <algorithm>

#include "keel/kernels/softmax_weights/softmax_weights.h"

namespace keel {
namespace {

bool better(const Sampler::Candidate& a, const Sampler::Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

}  // namespace

int64_t sampling_bytes(int64_t vocab_size) {
  return vocab_size * static_cast<int64_t>(sizeof(Sampler::Candidate) + sizeof(float)) +
         (vocab_size / kWeightsOfASum + 1) * static_cast<int64_t>(sizeof(float));
}

std::optional<int32_t> Sampler::draw(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  if (logits.empty()) return std::nullopt;
  const auto V = static_cast<int64_t>(logits.size());
  const HostView<const float, 1> z(logits.data(), {V});
  const LargestLogit largest = largest_logit(isa_, z);
  if (!largest.all_finite) return std::nullopt;
  if (options.temperature == 0) return largest.id;
  weights_.resize(V);
  sums_.resize((V + kWeightsOfASum - 1) / kWeightsOfASum);
  softmax_weights(isa_, z, largest.value, std::min(1 / options.temperature, 1e300), {weights_.data(), {V}},
                  {sums_.data(), {std::ssize(sums_)}});
  const bool cuts = options.top_p < 1 || (options.top_k > 0 && options.top_k < V);
  return cuts ? draw_from_best(logits, options, uniform) : draw_from_all(uniform);
}

/// Without a cut no order is needed: the draw goes over the ids.
int32_t Sampler::draw_from_all(double uniform) const {
  double total = 0;
  for (const float sum : sums_) total += sum;
  double left = uniform * total;
  size_t block = 0;
  while (block + 1 < sums_.size() && left >= sums_[block]) left -= sums_[block++];
  int32_t last = 0;  // with a weight
  for (size_t i = block * kWeightsOfASum; i < std::min<size_t>(weights_.size(), (block + 1) * kWeightsOfASum); ++i) {
    if (weights_[i] == 0) continue;
    last = static_cast<int32_t>(i);
    left -= weights_[i];
    if (left < 0) break;
  }
  return last;
}

/// The best come first, as many of them as are looked at.
int32_t Sampler::draw_from_best(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  const size_t all = candidates_.size();
  const size_t most = options.top_k > 0 ? std::min(all, static_cast<size_t>(options.top_k)) : all;
  size_t sorted = 0;
  const auto sort_to = [&](size_t count) {
    const auto at = [&](size_t i) { return candidates_.begin() + static_cast<int64_t>(i); };
    std::partial_sort(at(sorted), at(count), candidates_.end(), better);
    sorted = count;
  };
  if (most < all || options.top_p >= 1) sort_to(most);
  double total = 0;
  if (sorted == most) {
    for (size_t i = 0; i < most; ++i) total += weights_[candidates_[i].id];
  } else {
    for (const float sum : sums_) total += sum;
  }
  size_t kept = 0;
  double sum = 0;
  while (kept < most && (kept == 0 || sum < std::min(options.top_p, 1.0) * total)) {
    if (kept == sorted) sort_to(std::min(most, std::max<size_t>(64, 8 * sorted)));
    sum += weights_[candidates_[kept++].id];
  }
  double left = uniform * sum;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights_[candidates_[i].id];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[kept - 1].id;
}

}  // namespace keel
