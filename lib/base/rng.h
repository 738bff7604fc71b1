#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A pure function,
/// so a number depends on its place alone and never on threads or order.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// Steele, Lea, Flood 2014 (the finaliser, gamma added first): a bijection that spreads every bit.
constexpr uint64_t splitmix64(uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// A seed of its own for each purpose ("init", "shuffle", a parameter's name), from the user's one.
KEEL_API uint64_t derive_seed(uint64_t seed, std::string_view purpose) noexcept;

/// Four words for place `index` of `stream` under `seed`: philox4x32 with key = seed, counter = (index, stream), low
/// words first. Different (seed, stream, index) are independent.
constexpr std::array<uint32_t, 4> random_words(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                     static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

/// 64 random bits.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  const auto words = random_words(seed, stream, index);
  return (uint64_t{words[1]} << 32) | words[0];
}

/// In [0, 1), a multiple of 2^-53.
constexpr double uniform(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

/// In 0 .. n-1, n >= 1; the bias is below n / 2^64.
constexpr uint64_t uniform_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) noexcept {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits(seed, stream, index)) * n) >> 64);
}

/// Two independent standard normal values (Box-Muller in double, 53 bits each).
KEEL_API std::array<double, 2> normal_pair(uint64_t seed, uint64_t stream, uint64_t index) noexcept;

/// out[i] = deviation * z(first + i), where z(2k), z(2k+1) = normal_pair(seed, stream, k): any split of a tensor into
/// pieces gives the same values. first >= 0.
KEEL_API void fill_normal(uint64_t seed, uint64_t stream, int64_t first, double deviation,
                          std::span<float> out) noexcept;

}  // namespace keel
