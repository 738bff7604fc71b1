#pragma once

#include <span>

#include "keel/base/view.h"

namespace keel {

namespace detail {
void check_shape(const char* operation, const char* name, bool present, std::span<const int64_t> found,
                 std::span<const int64_t> strides, std::span<const int64_t> wanted, bool dense);
}  // namespace detail

/// Throws Error(shape), naming the operation and what was found and wanted, unless `view` is there (or has no elements)
/// with these extents and a last axis of stride 1. Internal to kernels/.
template <class T, int Rank>
void check_shape(const char* operation, const char* name, const View<T, Rank>& view,
                 const typename View<T, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, false);
}

/// The same, and the view must be dense.
template <class T, int Rank>
void check_dense(const char* operation, const char* name, const View<T, Rank>& view,
                 const typename View<T, Rank>::Extents& wanted) {
  detail::check_shape(operation, name, view.data() != nullptr, view.extents(), view.strides(), wanted, true);
}

}  // namespace keel
