#pragma once

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

/// Device memory as the host sees it, for a CPU context, where they are the same; what saves, loads or draws values in
/// place goes through here, so that another device shows where it must stage.
template <class T, int Rank>
HostView<T, Rank> host_view(Context& ctx, View<T, Rank> view) {
  if (ctx.device() != Device::cpu) throw Error(ErrorKind::internal, "host_view: the memory of this device is its own");
  return {view.data(), view.extents(), view.strides()};
}

}  // namespace keel
