#include "keel/data/sequence_order.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel {
namespace {

/// A keyed function of x: splitmix64 twice, so that neither key nor x shows through.
uint64_t keyed_bits(uint64_t key, uint64_t x) {
  return splitmix64(splitmix64(x ^ key) + key);
}

}  // namespace

// Swap-or-not shuffle: each round pairs x with K - x (mod n), K its key, and swaps the two or not by a keyed coin that
// both see. A Feistel network needs a domain that factors and reaches only even permutations of small ones; this is
// uniform for every n. 6 log2(n) rounds is the proposal of the paper; 24 more serve tiny n. About 1 us for a million
// sequences.
int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t p) {
  if (n < 1 || p < 0 || p >= n) throw Error(ErrorKind::internal, "permute: element outside the permutation");
  const auto count = static_cast<uint64_t>(n);
  const uint64_t key = keyed_bits(seed, static_cast<uint64_t>(epoch));
  const int rounds = 24 + 6 * std::bit_width(count);
  auto x = static_cast<uint64_t>(p);
  for (int round = 0; round < rounds; ++round) {
    const uint64_t round_key = keyed_bits(key, static_cast<uint64_t>(round));
    const auto pivot = static_cast<uint64_t>((static_cast<unsigned __int128>(round_key) * count) >> 64);
    const uint64_t partner = pivot >= x ? pivot - x : pivot + count - x;
    if ((keyed_bits(round_key, std::max(x, partner)) & 1) != 0) x = partner;
  }
  return static_cast<int64_t>(x);
}

SequenceOrder::SequenceOrder(int64_t sequences, bool shuffle, uint64_t seed)
    : sequences_(sequences), shuffle_(shuffle), seed_(seed) {
  if (sequences < 1) throw Error(ErrorKind::internal, "an order of no sequences");
}

int64_t SequenceOrder::at(int64_t position) const {
  const int64_t in_epoch = position % sequences_;
  return shuffle_ ? permute(seed_, epoch(position), sequences_, in_epoch) : in_epoch;
}

Mixture::Mixture(const std::vector<double>& weights) {
  double rest = 0;
  for (double weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw Error(ErrorKind::config, "a mixture weight is not a finite number of at least 0", "data.mixture");
    }
    rest += weight;
  }
  if (!(rest > 0) || !std::isfinite(rest)) {
    throw Error(ErrorKind::config, "the weights of the mixture add up to nothing", "data.mixture");
  }
  std::vector<double> suffix(weights.size() + 1, 0.0);
  for (size_t k = weights.size(); k-- > 0;) suffix[k] = suffix[k + 1] + weights[k];
  for (size_t k = 0; k + 1 < weights.size(); ++k) {
    const double share = suffix[k] > 0 ? weights[k] / suffix[k] : 0;
    shares_.push_back(static_cast<uint64_t>(std::ldexp(share, 63)));
  }
}

// Source 0 gets floor(p share) of the first p positions, which rises by 0 or 1 with each; what is left is dealt to the
// others in the same way. Integers throughout, so that no rounding can skip or repeat a place.
MixturePlace Mixture::at(int64_t position) const {
  auto p = static_cast<unsigned __int128>(position);
  for (size_t k = 0; k < shares_.size(); ++k) {
    const unsigned __int128 before = (p * shares_[k]) >> 63;
    const unsigned __int128 after = ((p + 1) * shares_[k]) >> 63;
    if (after > before) return {static_cast<int64_t>(k), static_cast<int64_t>(before)};
    p -= before;
  }
  return {static_cast<int64_t>(shares_.size()), static_cast<int64_t>(p)};
}

}  // namespace keel
