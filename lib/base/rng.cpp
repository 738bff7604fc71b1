#include "keel/base/rng.h"

#include <cmath>
#include <numbers>

namespace keel {

uint64_t derive_seed(uint64_t seed, std::string_view purpose) noexcept {
  uint64_t state = splitmix64(seed);
  for (const char c : purpose) state = splitmix64(state ^ static_cast<unsigned char>(c));
  return splitmix64(state ^ purpose.size());
}

std::array<double, 2> normal_pair(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  const auto words = random_words(seed, stream, index);
  const uint64_t a = (uint64_t{words[1]} << 32) | words[0];
  const uint64_t b = (uint64_t{words[3]} << 32) | words[2];
  const double in_0_1 = (static_cast<double>(a >> 11) + 1) * 0x1p-53;  // (0, 1]: its logarithm is finite
  const double turn = static_cast<double>(b >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2 * std::log(in_0_1));
  return {radius * std::cos(2 * std::numbers::pi * turn), radius * std::sin(2 * std::numbers::pi * turn)};
}

void fill_normal(uint64_t seed, uint64_t stream, int64_t first, double deviation, std::span<float> out) noexcept {
  const auto put = [&](size_t i, double z) { out[i] = static_cast<float>(deviation * z); };
  size_t i = 0;
  uint64_t index = static_cast<uint64_t>(first) / 2;
  if (first % 2 != 0 && !out.empty()) put(i++, normal_pair(seed, stream, index++)[1]);
  for (; i + 1 < out.size(); i += 2, ++index) {
    const auto pair = normal_pair(seed, stream, index);
    put(i, pair[0]);
    put(i + 1, pair[1]);
  }
  if (i < out.size()) put(i, normal_pair(seed, stream, index)[0]);
}

}  // namespace keel
