#include "keel/kernels/memory/device_reader.h"

namespace keel {
namespace {

bool is_same(View<const float, 1> a, View<const float, 1> b) {
  return a.data() == b.data() && a.size() == b.size();
}

}  // namespace

DeviceReader::DeviceReader(Context& ctx, int64_t most) : ctx_(ctx), slots_{Slot(ctx, most), Slot(ctx, most)} {}

void DeviceReader::request(View<const float, 1> part) {
  for (Slot& older : slots_) {
    if (is_same(older.part, part)) older.part = {};
  }
  Slot& slot = slots_[next_];
  next_ = 1 - next_;
  enqueue_copy_to_host(ctx_, part, slot.values);
  slot.part = part;
  slot.there.set();
}

HostView<const float, 1> DeviceReader::read(View<const float, 1> part) {
  if (!is_same(slots_[0].part, part) && !is_same(slots_[1].part, part)) request(part);
  Slot& slot = is_same(slots_[0].part, part) ? slots_[0] : slots_[1];
  slot.there.wait();
  slot.part = {};
  return slot.values.first(part.size());
}

void DeviceReader::forget() {
  for (Slot& slot : slots_) slot.part = {};
}

}  // namespace keel
