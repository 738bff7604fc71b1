#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace keel {

/// Where a view's memory lies. A device view belongs to the device of the Context it is used with (for a CPU context
/// that is ordinary memory); the two kinds do not convert into each other.
struct HostMemory {};
struct DeviceMemory {};

/// A non-owning, trivially copyable window on a dense or strided array: pointer, 64-bit extents and strides (in
/// elements). A null view (data() == nullptr) stands for an optional argument that is absent.
/// Indexing is bounds-checked in debug builds.
template <class T, int Rank, class Memory = DeviceMemory>
class View {
  static_assert(Rank >= 1 && Rank <= 4);

 public:
  using Extents = std::array<int64_t, Rank>;

  constexpr View() = default;
  /// Row-major and dense.
  constexpr View(T* data, const Extents& extents) : data_(data), extents_(extents) {
    int64_t stride = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= extents[i];
    }
  }
  constexpr View(T* data, const Extents& extents, const Extents& strides)
      : data_(data), extents_(extents), strides_(strides) {}
  /// View<T> converts to View<const T>.
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<U, std::remove_const_t<T>>) constexpr View(
      const View<U, Rank, Memory>& other)  // NOLINT: an implicit conversion, as from T* to const T*
      : data_(other.data()), extents_(other.extents()), strides_(other.strides()) {}

  constexpr T* data() const { return data_; }
  constexpr const Extents& extents() const { return extents_; }
  constexpr const Extents& strides() const { return strides_; }
  constexpr int64_t extent(int axis) const { return extents_[axis]; }
  constexpr int64_t stride(int axis) const { return strides_[axis]; }
  constexpr explicit operator bool() const { return data_ != nullptr; }

  constexpr int64_t size() const {
    int64_t n = 1;
    for (int64_t e : extents_) n *= e;
    return n;
  }
  /// True if the elements lie in row-major order without gaps.
  constexpr bool is_dense() const {
    int64_t stride = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      if (extents_[i] != 1 && strides_[i] != stride) return false;
      stride *= extents_[i];
    }
    return true;
  }

  template <class... I>
  requires(sizeof...(I) == Rank) constexpr T& operator()(I... index) const {
    const Extents at{static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (int i = 0; i < Rank; ++i) {
      assert(at[i] >= 0 && at[i] < extents_[i]);
      offset += at[i] * strides_[i];
    }
    return data_[offset];
  }

  /// The part [begin, end) of the first axis.
  constexpr View slice(int64_t begin, int64_t end) const {
    assert(begin >= 0 && begin <= end && end <= extents_[0]);
    View part = *this;
    part.data_ = data_ == nullptr ? nullptr : data_ + begin * strides_[0];
    part.extents_[0] = end - begin;
    return part;
  }
  /// The part [begin, end) of the last axis.
  constexpr View columns(int64_t begin, int64_t end) const {
    assert(begin >= 0 && begin <= end && end <= extents_[Rank - 1]);
    View part = *this;
    part.data_ = data_ == nullptr ? nullptr : data_ + begin * strides_[Rank - 1];
    part.extents_[Rank - 1] = end - begin;
    return part;
  }

 private:
  T* data_ = nullptr;
  Extents extents_{};
  Extents strides_{};
};

template <class T, int Rank>
using HostView = View<T, Rank, HostMemory>;

}  // namespace keel
