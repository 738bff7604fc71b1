#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "keel/base/hash.h"

namespace keel {

/// The ids of short parts of text seen lately. One slot a hash value, the newest part wins. 4 MiB once it is in use.
class PartCache {
 public:
  /// Appends the ids of `part` if they are known.
  bool find(std::string_view part, std::vector<int32_t>& ids) const {
    if (slots_.empty() || part.size() > kMaxKey) return false;
    const Slot& slot = slots_[index(part)];
    if (slot.count == 0 || std::string_view(slot.key.data(), slot.size) != part) return false;
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return true;
  }

  void insert(std::string_view part, const int32_t* ids, size_t count) {
    if (part.size() > kMaxKey || count == 0 || count > kMaxIds) return;
    if (slots_.empty()) {
      if (++parts_ < kPartsToBegin) return;
      slots_.resize(kSlots);
    }
    Slot& slot = slots_[index(part)];
    slot.size = static_cast<uint8_t>(part.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.key.data(), part.data(), part.size());
    std::copy_n(ids, count, slot.ids.begin());
  }

 private:
  static constexpr size_t kSlots = 1 << 16, kMaxKey = 30, kMaxIds = 8;
  static constexpr int kPartsToBegin = 1000;  // a short text alone is not worth the memory
  struct Slot {
    uint8_t size = 0;
    uint8_t count = 0;
    std::array<char, kMaxKey> key;
    std::array<int32_t, kMaxIds> ids;
  };
  static size_t index(std::string_view part) { return xxh3(part) % kSlots; }

  int parts_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace keel
