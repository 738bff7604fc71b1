#pragma once

#include <cstdint>
#include <map>

#include "keel/model/arena.h"

namespace keel {

/// Buffers that sublayers share by their slot (DecoderOptions::slot): one of `count` elements for every slot that is
/// asked for.
class ActivationSlots {
 public:
  ActivationSlots(ArenaPlan& arena, int64_t count) : arena_(arena), count_(count) {}

  Region<float> at(int64_t slot) {
    const auto found = made_.find(slot);
    if (found != made_.end()) return found->second;
    return made_.emplace(slot, arena_.add<float>(MemoryKind::activations, count_)).first->second;
  }
  /// No region where the sublayer has no use for one.
  Region<float> at_if(bool wanted, int64_t slot) { return wanted ? at(slot) : Region<float>{}; }

 private:
  ArenaPlan& arena_;
  int64_t count_;
  std::map<int64_t, Region<float>> made_;
};

}  // namespace keel
