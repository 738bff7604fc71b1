#pragma once

#include <string>
#include <utility>

#include "support/numeric.h"

namespace keel::testing {

/// A copy of `bytes` with one to four random changes: bits, bytes, cuts, repeats, insertions, integers of any size.
inline std::string mutated(std::string bytes, Random& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random.integer(0, static_cast<int64_t>(n) - 1)); };
  for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = below(bytes.size());
    switch (below(8)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.next());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(9));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
      case 5:
        bytes.insert(at, 1 + below(9), static_cast<char>(random.next()));
        break;
      case 6: {
        const uint64_t number = random.next() >> below(64);
        bytes.replace(at, sizeof number, reinterpret_cast<const char*>(&number), sizeof number);
        break;
      }
      default:
        bytes.replace(at, 1, std::string(1 + below(4), "\0\xFF\x7F\x80"[below(4)]));
        break;
    }
  }
  return bytes;
}

}  // namespace keel::testing
