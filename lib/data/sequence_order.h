#pragma once

#include <cstdint>
#include <vector>

#include "keel/base/export.h"

namespace keel {

/// perm(seed, epoch, .): element p (0 <= p < n) of a pseudo-random permutation of 0 .. n-1, computed on demand in
/// constant time and memory. A function of its arguments alone; n >= 1.
KEEL_API int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t p);

/// Which sequence stands at position p = 0, 1, 2, ... of training: perm(seed, floor(p / n), p mod n) when shuffling,
/// else p mod n. Epochs follow one another without a gap.
class KEEL_API SequenceOrder {
 public:
  /// sequences >= 1; fewer throws Error(internal).
  SequenceOrder(int64_t sequences, bool shuffle, uint64_t seed);

  int64_t sequences() const { return sequences_; }
  int64_t at(int64_t position) const;
  int64_t epoch(int64_t position) const { return position / sequences_; }

 private:
  int64_t sequences_;
  bool shuffle_;
  uint64_t seed_;
};

/// A place in a mixture: the `position`-th sequence taken from source `source`.
struct MixturePlace {
  int64_t source, position;
};

/// Deals positions 0, 1, 2, ... to sources in proportion to their weights, deterministically and evenly: after p
/// positions source k has got p w_k / sum(w) of them, give or take less than 2 (exactly p with one source). Pure;
/// O(sources).
class KEEL_API Mixture {
 public:
  /// Weights must be finite, >= 0 and not all 0; otherwise throws Error(config).
  explicit Mixture(const std::vector<double>& weights);

  int64_t sources() const { return static_cast<int64_t>(shares_.size()) + 1; }
  MixturePlace at(int64_t position) const;

 private:
  std::vector<uint64_t> shares_;  // share of source k in what sources k, k+1, ... get, in units of 2^-63
};

}  // namespace keel
