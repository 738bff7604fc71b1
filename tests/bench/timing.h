#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "keel/base/median.h"

namespace keel::bench {

struct Timing {
  double median = 0, fastest = 0;
  int64_t repeats = 0;
};

/// Seconds of each piece of work, after one round to warm up. The pieces take turns, so that a change of the machine's
/// speed meets all of them alike; at least 7 rounds, more until `seconds` have passed.
template <class... Work>
std::vector<Timing> measure(double seconds, Work... work) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [](auto& piece) {
    const auto begin = Clock::now();
    piece();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  (work(), ...);
  std::vector<std::vector<double>> times(sizeof...(work));
  const auto start = Clock::now();
  while (times[0].size() < 7 || std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
    size_t i = 0;
    (times[i++].push_back(timed(work)), ...);
  }
  std::vector<Timing> result;
  for (std::vector<double>& t : times) {
    result.push_back({median(t), *std::min_element(t.begin(), t.end()), std::ssize(t)});
  }
  return result;
}

/// n values in [-1, 1), the same for the same seed.
inline std::vector<float> values(int64_t n, uint32_t seed = 1) {
  std::vector<float> v(n);
  uint32_t state = seed * 747796405U;
  for (float& x : v) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
  return v;
}

}  // namespace keel::bench
