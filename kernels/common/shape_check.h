#pragma once

#include <span>

#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"

namespace keel {

namespace detail {
void check_shape(const char* operation, const char* name, bool present, std::span<const int64_t> found,
                 std::span<const int64_t> strides, std::span<const int64_t> wanted, bool dense);
void check_type(const char* operation, const char* name, ElementType found, ElementType wanted, const char* reason);
}  // namespace detail

/// Throws Error(shape), naming the operation and what was found and wanted, unless `view` is there (or has no elements)
/// with these extents and a last axis of stride 1. Internal to kernels/.
template <class T, int Rank>
void check_shape(const char* operation, const char* name, const View<T, Rank>& view,
                 const typename View<T, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, false);
}

template <class Access, int Rank>
void check_shape(const char* operation, const char* name, const AnyView<Access, Rank>& view,
                 const typename AnyView<Access, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, false);
}

/// The same, and the view must be dense.
template <class T, int Rank>
void check_dense(const char* operation, const char* name, const View<T, Rank>& view,
                 const typename View<T, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, true);
}
template <class Access, int Rank>
void check_dense(const char* operation, const char* name, const AnyView<Access, Rank>& view,
                 const typename AnyView<Access, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, true);
}

/// Throws Error(shape) unless the elements of `view`, if it is not null, are of this type, that of the operation's others.
template <class Access, int Rank>
void check_type(const char* operation, const char* name, const AnyView<Access, Rank>& view, ElementType wanted) {
  if (view) detail::check_type(operation, name, view.type(), wanted, "as the other matrices");
}

/// The floats of a view; throws Error(shape) if it has others, which a CPU does not compute with.
template <class Access, int Rank>
auto floats_of(const char* operation, const char* name, const AnyView<Access, Rank>& view) {
  using Floats = typename AnyView<Access, Rank>::template Typed<float>;
  if (!view) return Floats(nullptr, view.extents(), view.strides());
  detail::check_type(operation, name, view.type(), ElementType::fp32, "on a CPU");
  return view.template as<float>();
}

}  // namespace keel
