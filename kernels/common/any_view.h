#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "keel/base/view.h"
#include "keel/kernels/common/bf16.h"

namespace keel {

/// What a number is in memory.
enum class ElementType { fp32, bf16 };

constexpr int64_t element_bytes(ElementType type) {
  return type == ElementType::fp32 ? 4 : 2;
}
constexpr const char* to_string(ElementType type) {
  return type == ElementType::fp32 ? "fp32" : "bf16";
}

/// ElementType of T, const or not.
template <class T>
inline constexpr ElementType kElementType =
    std::is_same_v<std::remove_const_t<T>, Bf16> ? ElementType::bf16 : ElementType::fp32;

/// A view of floats or of Bf16, whichever type() says: of what branches compute with. `Access` is void or const void, as
/// of a pointer. It converts from views of either type; a null one is of fp32 unless it was made otherwise.
template <class Access, int Rank>
class AnyView {
  static_assert(std::is_void_v<Access>);
  static constexpr bool kConst = std::is_const_v<Access>;
  template <class T>
  static constexpr bool kFits = (std::is_same_v<std::remove_const_t<T>, float> ||
                                 std::is_same_v<std::remove_const_t<T>, Bf16>)&&(kConst || !std::is_const_v<T>);
  using Byte = std::conditional_t<kConst, const char, char>;

 public:
  using Extents = std::array<int64_t, Rank>;
  template <class T>
  using Typed = View<std::conditional_t<kConst, const T, T>, Rank>;

  constexpr AnyView() = default;
  /// Row-major and dense.
  constexpr AnyView(Access* data, ElementType type, const Extents& extents)
      : places_(static_cast<Byte*>(data), extents), type_(type) {}
  constexpr AnyView(Access* data, ElementType type, const Extents& extents, const Extents& strides)
      : places_(static_cast<Byte*>(data), extents, strides), type_(type) {}
  template <class T>
  requires(kFits<T>) constexpr AnyView(T* data, const Extents& extents) : AnyView(View<T, Rank>(data, extents)) {}
  template <class T>
  requires(kFits<T>) constexpr AnyView(T* data, const Extents& extents, const Extents& strides)
      : AnyView(View<T, Rank>(data, extents, strides)) {}
  constexpr AnyView(std::nullptr_t, const Extents& extents) : AnyView(nullptr, ElementType::fp32, extents) {}
  template <class T>
  requires(kFits<T>) constexpr AnyView(const View<T, Rank>& view)  // NOLINT: an implicit conversion, as of pointers
      : AnyView(static_cast<Access*>(view.data()), kElementType<T>, view.extents(), view.strides()) {}
  template <class Other>
  requires(kConst&& std::is_void_v<Other> &&
           !std::is_const_v<Other>) constexpr AnyView(const AnyView<Other, Rank>& other)  // NOLINT: likewise
      : AnyView(other.data(), other.type(), other.extents(), other.strides()) {}

  constexpr ElementType type() const { return type_; }
  constexpr Access* data() const { return places_.data(); }
  constexpr const Extents& extents() const { return places_.extents(); }
  constexpr const Extents& strides() const { return places_.strides(); }
  constexpr int64_t extent(int axis) const { return places_.extent(axis); }
  constexpr int64_t stride(int axis) const { return places_.stride(axis); }
  constexpr explicit operator bool() const { return static_cast<bool>(places_); }
  constexpr int64_t size() const { return places_.size(); }
  constexpr bool is_dense() const { return places_.is_dense(); }

  /// The part [begin, end) of the first axis.
  constexpr AnyView slice(int64_t begin, int64_t end) const { return part(0, begin, end); }
  /// The part [begin, end) of the last axis.
  constexpr AnyView columns(int64_t begin, int64_t end) const { return part(Rank - 1, begin, end); }

  /// Its elements, which are T.
  template <class T>
  constexpr Typed<T> as() const {
    assert(type_ == kElementType<T>);
    using Element = std::conditional_t<kConst, const T, T>;
    return {static_cast<Element*>(data()), extents(), strides()};
  }
  /// The same memory by other extents and strides, from `element` on.
  template <int OtherRank>
  constexpr AnyView<Access, OtherRank> reshaped(int64_t element, const std::array<int64_t, OtherRank>& extents,
                                                const std::array<int64_t, OtherRank>& strides) const {
    return {at(element), type_, extents, strides};
  }

 private:
  constexpr Access* at(int64_t element) const {
    return places_.data() == nullptr ? nullptr : places_.data() + element * element_bytes(type_);
  }
  constexpr AnyView part(int axis, int64_t begin, int64_t end) const {
    assert(begin >= 0 && begin <= end && end <= extent(axis));
    Extents smaller = extents();
    smaller[axis] = end - begin;
    return {at(begin * stride(axis)), type_, smaller, strides()};
  }

  View<Byte, Rank> places_;  ///< data, extents and strides; its elements are no bytes
  ElementType type_ = ElementType::fp32;
};

}  // namespace keel
