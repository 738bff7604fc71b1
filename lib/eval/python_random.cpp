#include "keel/eval/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr int kShift = 397;

uint32_t twist(uint32_t upper, uint32_t lower) {
  const uint32_t y = (upper & 0x80000000U) | (lower & 0x7FFFFFFFU);
  return (y >> 1) ^ ((y & 1U) != 0 ? 0x9908B0DFU : 0U);
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const int key_words = key[1] != 0 ? 2 : 1;
  state_[0] = 19650218U;
  for (int i = 1; i < kWords; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  int i = 1, j = 0;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  const auto mixed = [&](uint32_t factor) { return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor); };
  for (int k = 0; k < kWords; ++k) {
    state_[i] = mixed(1664525U) + key[j] + static_cast<uint32_t>(j);
    advance();
    j = (j + 1) % key_words;
  }
  for (int k = 0; k < kWords - 1; ++k) {
    state_[i] = mixed(1566083941U) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  int i = 0;
  for (; i < kWords - kShift; ++i) state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (; i < kWords - 1; ++i) state_[i] = state_[i + kShift - kWords] ^ twist(state_[i], state_[i + 1]);
  state_[kWords - 1] = state_[kShift - 1] ^ twist(state_[kWords - 1], state_[0]);
  at_ = 0;
}

int64_t PythonRandom::below(int64_t n) {
  if (n < 1 || n > INT64_C(0xFFFFFFFF)) throw Error(ErrorKind::internal, "PythonRandom::below: n out of range");
  const int shift = std::countl_zero(static_cast<uint32_t>(n));
  while (true) {
    const auto draw = static_cast<int64_t>(next() >> shift);
    if (draw < n) return draw;
  }
}

std::vector<int64_t> PythonRandom::sample(int64_t population, int64_t count) {
  if (count < 0 || count > population) throw Error(ErrorKind::internal, "PythonRandom::sample: count out of range");
  // Where a set of that many takes more room than the whole population, CPython draws from a list of it.
  int64_t set_size = 21;
  if (count > 5) {
    int64_t power = 1;
    while (power < 3 * count) power *= 4;
    set_size += power;
  }
  std::vector<int64_t> picks(count);
  if (population <= set_size) {
    std::vector<int64_t> pool(population);
    std::iota(pool.begin(), pool.end(), int64_t{0});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = below(population - i);
      picks[i] = pool[j];
      pool[j] = pool[population - i - 1];
    }
    return picks;
  }
  std::unordered_set<int64_t> taken;
  for (int64_t& pick : picks) {
    do {
      pick = below(population);
    } while (!taken.insert(pick).second);
  }
  return picks;
}

}  // namespace keel
