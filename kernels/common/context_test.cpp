#include "keel/kernels/common/context.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "support/child.h"
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
  const auto result = testing::run_in_child([] {
    if (!testing::forbid_threads()) return 77;
    const Context alone(1);
    try {
      const Context two(2);
    } catch (const Error& error) {
      return exit_code(error.kind());
    }
    return 0;
  });
  if (result.code == 77) GTEST_SKIP() << "threads cannot be limited here";
  EXPECT_EQ(result.code, kExitDevice);
}

}  // namespace
}  // namespace keel
