#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/view.h"
#include "keel/kernels/common/context.h"

namespace keel {

struct CudaMark;  // of the backend, cuda_device.h

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

/// to[i] = from[i], from the host to the context's device; the same length, both dense. `from`, which is no PinnedMemory, may
/// be reused at once.
template <class T>
void copy_to_device(Context& ctx, HostView<const T, 1> from, View<T, 1> to) {
  if (from.size() != to.size()) throw Error(ErrorKind::shape, "copy_to_device: lengths differ");
  detail::copy_to_device_bytes(ctx, from.data(), to.data(), from.size() * static_cast<int64_t>(sizeof(T)));
}

/// to[i] = from[i], from the context's device to the host; valid after ctx.synchronize(). The host may have to wait here; into
/// PinnedMemory it need not (enqueue_copy_to_host).
template <class T>
void copy_to_host(Context& ctx, View<const T, 1> from, HostView<T, 1> to) {
  if (from.size() != to.size()) throw Error(ErrorKind::shape, "copy_to_host: lengths differ");
  detail::copy_to_host_bytes(ctx, from.data(), to.data(), from.size() * static_cast<int64_t>(sizeof(T)));
}

/// A place in what a context enqueues; on a CPU everything before it has run when it is set. The context outlives it.
class KEEL_API Mark {
 public:
  explicit Mark(Context&);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// Behind everything enqueued so far; an earlier place is forgotten.
  void set();
  /// Returns once everything before the mark has run; at once if it was never set. Error(device) if something of it
  /// failed.
  void wait();
  /// From the moment when the device reached `earlier` until it reached this one. Both have been waited for.
  double seconds_since(const Mark& earlier) const;

 private:
  Context& ctx_;
  CudaMark* mark_ = nullptr;
  std::chrono::steady_clock::time_point time_;  ///< on a CPU
};

namespace detail {
KEEL_API void* allocate_pinned(Context&, int64_t bytes);
KEEL_API void release_pinned(Context&, void* memory) noexcept;
}  // namespace detail

/// `count` values of the host, zero at first, that a GPU copies from and to by itself while the host goes on (page-locked);
/// on a CPU memory like any other. Given back when what is enqueued has run. The context outlives it. Error(memory).
template <class T>
class PinnedMemory {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PinnedMemory(Context& ctx, int64_t count)
      : ctx_(ctx),
        data_(static_cast<T*>(detail::allocate_pinned(ctx, count * static_cast<int64_t>(sizeof(T))))),
        count_(count) {}
  ~PinnedMemory() { detail::release_pinned(ctx_, data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  int64_t count() const { return count_; }
  /// The first of them, for the host to read and write where no copy that is enqueued does.
  HostView<T, 1> first(int64_t count) const {
    if (count > count_) throw Error(ErrorKind::shape, "pinned memory: more than there is");
    return {data_, {count}};
  }

 private:
  Context& ctx_;
  T* data_;
  int64_t count_;
};

/// Enqueues to[i] = from[i], from the host to the context's device; to: dense, no longer than `from`, which stays as it is
/// until a Mark set behind this is reached.
template <class T>
void enqueue_copy_to_device(Context& ctx, const PinnedMemory<T>& from, View<T, 1> to) {
  detail::copy_to_device_bytes(ctx, from.first(to.size()).data(), to.data(),
                               to.size() * static_cast<int64_t>(sizeof(T)));
}

/// Enqueues to[i] = from[i], from the context's device to the host; from: dense, no longer than `to`, which is complete, and
/// may be written again, when a Mark set behind this is reached.
template <class T>
void enqueue_copy_to_host(Context& ctx, View<const T, 1> from, const PinnedMemory<T>& to) {
  detail::copy_to_host_bytes(ctx, from.data(), to.first(from.size()).data(),
                             from.size() * static_cast<int64_t>(sizeof(T)));
}

/// Memory of a GPU, filled with zeros. Error(memory), with the hint, if there is not as much.
KEEL_API void* allocate_on_device(Context&, int64_t bytes, const std::string& hint = {});
KEEL_API void release_on_device(Context&, void* memory);
/// Bytes that a GPU has left.
KEEL_API int64_t free_device_bytes(Context&);
/// The most that this process had of a GPU's memory at a time, without what CUDA takes for itself.
KEEL_API int64_t peak_device_bytes(Context&);

/// What the host hands to operations, or takes from them, again and again: on a GPU a copy in memory of its own, by way of
/// pinned memory, both kept and only ever grown; on a CPU the host's memory itself. The context outlives it.
template <class T>
class DeviceCopy {
 public:
  explicit DeviceCopy(Context& ctx) : ctx_(ctx), sent_(ctx) {}
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
    make_room(from.size());
    sent_.wait();
    const HostView<T, 1> staged = pinned_->first(from.size());
    std::copy_n(from.data(), from.size(), staged.data());
    enqueue_copy_to_device(ctx_, *pinned_, View<T, 1>(memory_, {from.size()}));
    sent_.set();
    return {memory_, from.extents()};
  }

  /// Where operations may write what fetch() then brings to `to`; on a CPU `to` itself.
  template <int Rank>
  View<T, Rank> in_place_of(HostView<T, Rank> to) {
    if (to.data() == nullptr) return {};
    if (ctx_.device() == Device::cpu) return {to.data(), to.extents()};
    make_room(to.size());
    return {memory_, to.extents()};
  }
  /// Enqueues the copy of what in_place_of(to) gave.
  template <int Rank>
  void fetch(HostView<T, Rank> to) {
    if (to.data() == nullptr || ctx_.device() == Device::cpu) return;
    enqueue_copy_to_host(ctx_, View<const T, 1>(memory_, {to.size()}), *pinned_);
  }
  /// Puts it there, once ctx.synchronize() has returned.
  template <int Rank>
  void receive(HostView<T, Rank> to) {
    if (to.data() == nullptr || ctx_.device() == Device::cpu) return;
    std::copy_n(pinned_->first(to.size()).data(), to.size(), to.data());
  }

 private:
  void make_room(int64_t count) {
    if (count <= capacity_) return;
    if (memory_ != nullptr) release_on_device(ctx_, std::exchange(memory_, nullptr));
    capacity_ = 0;
    memory_ = static_cast<T*>(allocate_on_device(ctx_, count * static_cast<int64_t>(sizeof(T))));
    pinned_.emplace(ctx_, count);
    capacity_ = count;
  }

  Context& ctx_;
  T* memory_ = nullptr;
  std::optional<PinnedMemory<T>> pinned_;
  Mark sent_;
  int64_t capacity_ = 0;
};

}  // namespace keel
