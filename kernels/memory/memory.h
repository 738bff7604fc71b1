#pragma once

#include <string>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

namespace detail {
/// The one place where host and device memory meet.
KEEL_API void copy_to_device_bytes(Context&, const void* from, void* to, int64_t bytes);
KEEL_API void copy_to_host_bytes(Context&, const void* from, void* to, int64_t bytes);
KEEL_API void zero_bytes(Context&, void* to, int64_t bytes);
}  // namespace detail

/// to[i] = 0.  to: dense.
template <class T>
void zero(Context& ctx, View<T, 1> to) {
  detail::zero_bytes(ctx, to.data(), to.size() * static_cast<int64_t>(sizeof(T)));
}

/// to[i] = from[i], from the host to the context's device; the same length, both dense. `from` may be reused at once.
template <class T>
void copy_to_device(Context& ctx, HostView<const T, 1> from, View<T, 1> to) {
  if (from.size() != to.size()) throw Error(ErrorKind::shape, "copy_to_device: lengths differ");
  detail::copy_to_device_bytes(ctx, from.data(), to.data(), from.size() * static_cast<int64_t>(sizeof(T)));
}

/// to[i] = from[i], from the context's device to the host; valid after ctx.synchronize().
template <class T>
void copy_to_host(Context& ctx, View<const T, 1> from, HostView<T, 1> to) {
  if (from.size() != to.size()) throw Error(ErrorKind::shape, "copy_to_host: lengths differ");
  detail::copy_to_host_bytes(ctx, from.data(), to.data(), from.size() * static_cast<int64_t>(sizeof(T)));
}

/// Memory of a GPU, filled with zeros. Error(memory), with the hint, if there is not as much.
KEEL_API void* allocate_on_device(Context&, int64_t bytes, const std::string& hint = {});
KEEL_API void release_on_device(Context&, void* memory);
/// Bytes that a GPU has left.
KEEL_API int64_t free_device_bytes(Context&);

/// What the host hands to operations again and again: on a GPU a copy in memory of its own, which is kept and only ever
/// grown; on a CPU the host's memory itself. The context outlives it.
template <class T>
class DeviceCopy {
 public:
  explicit DeviceCopy(Context& ctx) : ctx_(ctx) {}
  ~DeviceCopy() {
    if (memory_ != nullptr) release_on_device(ctx_, memory_);
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  /// `from` as operations may read it until the next call; dense. On a CPU `from` has to stay as it is until then.
  template <int Rank>
  View<const T, Rank> of(HostView<const T, Rank> from) {
    if (from.data() == nullptr) return {};
    if (ctx_.device() == Device::cpu) return {from.data(), from.extents()};
    T* const to = room(from.size());
    detail::copy_to_device_bytes(ctx_, from.data(), to, from.size() * static_cast<int64_t>(sizeof(T)));
    return {to, from.extents()};
  }

  /// Where operations may write what fetch() then brings to `to`; on a CPU `to` itself.
  template <int Rank>
  View<T, Rank> in_place_of(HostView<T, Rank> to) {
    if (to.data() == nullptr) return {};
    if (ctx_.device() == Device::cpu) return {to.data(), to.extents()};
    return {room(to.size()), to.extents()};
  }
  /// Enqueues the copy of what in_place_of(to) gave.
  template <int Rank>
  void fetch(HostView<T, Rank> to) {
    if (to.data() == nullptr || ctx_.device() == Device::cpu) return;
    detail::copy_to_host_bytes(ctx_, memory_, to.data(), to.size() * static_cast<int64_t>(sizeof(T)));
  }

 private:
  T* room(int64_t count) {
    if (count > capacity_) {
      if (memory_ != nullptr) release_on_device(ctx_, std::exchange(memory_, nullptr));
      capacity_ = 0;
      memory_ = static_cast<T*>(allocate_on_device(ctx_, count * static_cast<int64_t>(sizeof(T))));
      capacity_ = count;
    }
    return memory_;
  }

  Context& ctx_;
  T* memory_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace keel
