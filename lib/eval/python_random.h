#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "keel/base/export.h"

namespace keel {

/// CPython's random.Random, draw for draw (3.8 to 3.13): MT19937 seeded by init_by_array with the 32-bit words of the
/// seed. Sources: Matsumoto and Nishimura 1998; CPython's Lib/random.py for what is made of the draws.
class KEEL_API PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  /// The next 32 bits: getrandbits(32).
  uint32_t next() {
    if (at_ == kWords) refill();
    uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680U;
    y ^= (y << 15) & 0xEFC60000U;
    return y ^ (y >> 18);
  }
  /// random(): uniform in [0, 1), 53 bits from two draws.
  double uniform() {
    const uint32_t high = next() >> 5;
    const uint32_t low = next() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  /// randrange(n): 0 <= result < n. Error(internal) unless 1 <= n < 2^32.
  int64_t below(int64_t n);
  /// sample(range(population), count): distinct numbers in the order drawn. Error(internal) unless 0 <= count <=
  /// population < 2^32.
  std::vector<int64_t> sample(int64_t population, int64_t count);

 private:
  static constexpr int kWords = 624;
  void refill();

  std::array<uint32_t, kWords> state_;
  int at_ = kWords;
};

}  // namespace keel
