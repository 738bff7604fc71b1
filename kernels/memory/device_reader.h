#pragma once

#include <array>
#include <cstdint>

#include "keel/kernels/memory/memory.h"

namespace keel {

/// Brings parts of arrays from a GPU to the host, one on its way while the host works on the one before. The context outlives
/// it.
class KEEL_API DeviceReader {
 public:
  /// Parts of `most` values or fewer. Error(memory).
  DeviceReader(Context& ctx, int64_t most);

  /// Enqueues the copy of a part that read() is going to be asked for; the last request but one is forgotten. What the device
  /// writes there later is not seen.
  void request(View<const float, 1> part);
  /// The part, which is dense, requested or not; valid until the second call from here on of either. Error(device).
  HostView<const float, 1> read(View<const float, 1> part);
  /// Whatever was requested.
  void forget();

 private:
  struct Slot {
    Slot(Context& ctx, int64_t most) : values(ctx, most), there(ctx) {}
    View<const float, 1> part;
    PinnedMemory<float> values;
    Mark there;
  };

  Context& ctx_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
};

}  // namespace keel
