#include "keel/kernels/common/context.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "support/no_threads.h"

namespace keel {
namespace {

TEST(Context, ScratchGrowsAndStays) {
  Context context(1);
  EXPECT_EQ(context.scratch_bytes(), 0);
  const void* first = context.scratch(100);
  EXPECT_EQ(context.scratch_bytes(), 128);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
  EXPECT_EQ(context.scratch(128), first);
  EXPECT_EQ(context.scratch_bytes(), 128);
  (void)context.scratch(129);
  EXPECT_EQ(context.scratch_bytes(), 192);
  Context other(1);
  EXPECT_NE(other.scratch(129), context.scratch(129));
}

TEST(Context, ThreadsThatCannotBeHadAreAnError) {
  const auto code = testing::exit_code_without_threads([] { const Context two(2); });
  if (!code) GTEST_SKIP() << "threads cannot be limited here";
  EXPECT_EQ(testing::exit_code_without_threads([] { const Context alone(1); }), 0);
  EXPECT_EQ(*code, kExitDevice);
}

}  // namespace
}  // namespace keel
