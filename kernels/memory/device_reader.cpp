#include "keel/kernels/memory/device_reader.h"

namespace keel {

DeviceReader::DeviceReader(Context& ctx, int64_t most) : ctx_(ctx), slots_{Slot(ctx, most), Slot(ctx, most)} {}

void DeviceReader::request(View<const float, 1> part) {
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  enqueue_copy_to_host(ctx_, part, slot.values);
  slot.part = part;
  slot.there.set();
}

HostView<const float, 1> DeviceReader::read(View<const float, 1> part) {
  const auto is_it = [&](const Slot& slot) {
    return slot.part.data() == part.data() && slot.part.size() == part.size();
  };
  if (!is_it(slots_[0]) && !is_it(slots_[1])) request(part);
  Slot& slot = is_it(slots_[0]) ? slots_[0] : slots_[1];
  slot.there.wait();
  slot.part = {};
  return slot.values.first(part.size());
}

void DeviceReader::forget() {
  for (Slot& slot : slots_) slot.part = {};
}

}  // namespace keel
