#pragma once

#include <vector>

#include "keel/kernels/matmul/matmul.h"
#include "support/numeric.h"
#include "support/test_device.h"

namespace keel::testing {

/// Whether rows of a product have the same bits in a product of fewer rows: the library's choice, which with AVX-512 does
/// not look at their number.
inline bool products_are_alike_for_any_rows() {
  Context ctx = test_context(1);
  constexpr int64_t kRows = 500, kFewer = 37, kOut = 61, kIn = 300;
  Random random(5);
  const auto a = random.normals(kRows * kIn), b = random.normals(kOut * kIn);
  std::vector<float> all(kRows * kOut), some(kFewer * kOut);
  matmul(ctx, {a.data(), {kRows, kIn}}, {b.data(), {kOut, kIn}}, {all.data(), {kRows, kOut}}, Transpose::b);
  matmul(ctx, {a.data(), {kFewer, kIn}}, {b.data(), {kOut, kIn}}, {some.data(), {kFewer, kOut}}, Transpose::b);
  ctx.synchronize();
  all.resize(some.size());
  return all == some;
}

}  // namespace keel::testing

/// For tests of what follows from that alone.
#define KEEL_SKIP_UNLESS_PRODUCTS_ARE_ALIKE()            \
  if (!keel::testing::products_are_alike_for_any_rows()) \
  GTEST_SKIP() << "products of other numbers of rows have other bits on this processor"
