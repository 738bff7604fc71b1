#pragma once

#include <cstdint>

namespace keel {

/// Pairs of a query and a key that it sees. Query i of the last `queries` of `keys` tokens sees
/// min(keys - queries + i + 1, window) of them; window 0: all before it.
constexpr double attention_pairs(int64_t queries, int64_t keys, int64_t window) {
  const int64_t reach = window > 0 ? window : keys, first = keys - queries + 1;
  const int64_t wanted = reach - first, growing = wanted < 0 ? 0 : (wanted < queries ? wanted : queries);
  return static_cast<double>(growing) * (static_cast<double>(first) + static_cast<double>(growing - 1) / 2) +
         static_cast<double>(queries - growing) * static_cast<double>(reach);
}

}  // namespace keel
