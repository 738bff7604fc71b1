#pragma once

#include <cstdint>
#include <map>

#include "keel/kernels/cast/cast.h"
#include "keel/kernels/common/row_blocks.h"
#include "keel/model/arena.h"
#include "keel/model/decoder_options.h"

namespace keel {

/// Buffers that sublayers share by their slot (DecoderOptions::slot): one of `count` elements for every slot that is
/// asked for; those of void are of this type.
template <class T>
class ActivationSlots {
 public:
  ActivationSlots(ArenaPlan& arena, int64_t count, MemoryKind kind = MemoryKind::activations,
                  ElementType type = ElementType::fp32)
      : arena_(arena), count_(count), kind_(kind), type_(type) {}

  Region<T> at(int64_t slot) {
    const auto found = made_.find(slot);
    return found != made_.end() ? found->second : made_.emplace(slot, make()).first->second;
  }
  /// No region where the sublayer has no use for one.
  Region<T> at_if(bool wanted, int64_t slot) {
    if (wanted) return at(slot);
    Region<T> none;
    if constexpr (std::is_void_v<T>) none.type = type_;
    return none;
  }

 private:
  Region<T> make() {
    if constexpr (std::is_void_v<T>) {
      return arena_.add(kind_, count_, type_);
    } else {
      return arena_.template add<T>(kind_, count_);
    }
  }

  ArenaPlan& arena_;
  int64_t count_;
  MemoryKind kind_;
  ElementType type_;
  std::map<int64_t, Region<T>> made_;
};

/// What a branch keeps for its backward pass, by slot, in the type of the options.
class KeptSlots {
 public:
  KeptSlots(ArenaPlan& arena, const DecoderOptions& options, int64_t count)
      : rounds_(options.rounds_activations()),
        values_(arena, count, rounds_ ? MemoryKind::workspace : MemoryKind::activations, options.compute),
        rounded_(arena, count) {}

  KeptRegion at_if(bool wanted, int64_t slot) {
    if (!wanted) return {};
    return rounds_ ? KeptRegion{values_.at(0), rounded_.at(slot)} : KeptRegion{values_.at(slot), {}};
  }

 private:
  bool rounds_;
  ActivationSlots<void> values_;
  ActivationSlots<Bf16> rounded_;
};

/// These rows of the kept matrix, all of whose rows are `values`, in bf16; null where it is not rounded.
inline View<Bf16, 2> rounded_rows(const Arena& arena, const KeptRegion& kept, const AnyView<void, 2>& values,
                                  Rows rows) {
  return slice(View<Bf16, 2>(arena.at(kept.rounded), values.extents()), rows);
}
/// Forward: keeps these rows.
inline void keep(Context& ctx, const Arena& arena, const KeptRegion& kept, const AnyView<void, 2>& values, Rows rows) {
  if (kept.rounded.count > 0) narrow(ctx, slice(values, rows).as<float>(), rounded_rows(arena, kept, values, rows));
}
/// Backward: what is kept of these rows is in `values` afterwards.
inline void recall(Context& ctx, const Arena& arena, const KeptRegion& kept, const AnyView<void, 2>& values,
                   Rows rows) {
  if (kept.rounded.count > 0) widen(ctx, rounded_rows(arena, kept, values, rows), slice(values, rows).as<float>());
}

}  // namespace keel
