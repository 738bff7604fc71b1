#include "keel/kernels/common/shape_check.h"

#include <algorithm>
#include <string>

#include "keel/base/error.h"

namespace keel::detail {
namespace {

std::string to_string(std::span<const int64_t> extents) {
  std::string text = "[";
  for (const int64_t& e : extents) text += (&e == extents.data() ? "" : ", ") + std::to_string(e);
  return text + "]";
}

bool is_dense(std::span<const int64_t> extents, std::span<const int64_t> strides) {
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    if (extents[i] != 1 && strides[i] != stride) return false;
    stride *= extents[i];
  }
  return true;
}

}  // namespace

void check_shape(const char* operation, const char* name, bool present, std::span<const int64_t> found,
                 std::span<const int64_t> strides, std::span<const int64_t> wanted, bool dense) {
  const auto fail = [&](const std::string& what) { throw Error(ErrorKind::shape, name + what, operation); };
  if (!std::ranges::equal(found, wanted)) fail(" is " + to_string(found) + ", not " + to_string(wanted));
  if (std::ranges::find(wanted, 0) != wanted.end()) return;
  if (!present) fail(" is missing, " + to_string(wanted) + " wanted");
  if (dense && !is_dense(found, strides)) fail(" is not dense");
  if (found.back() != 1 && strides.back() != 1) fail("'s last axis is not contiguous");
}

void check_type(const char* operation, const char* name, ElementType found, ElementType wanted, const char* reason) {
  if (found == wanted) return;
  throw Error(ErrorKind::shape,
              std::string(name) + " is " + keel::to_string(found) + ", not " + keel::to_string(wanted) + " " + reason,
              operation);
}

}  // namespace keel::detail
