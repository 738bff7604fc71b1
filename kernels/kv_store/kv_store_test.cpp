#include "keel/kernels/kv_store/kv_store.h"

#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/kv_store/kv_store_ref.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/guarded_matrix.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::GuardedMatrix;
using testing::Random;

struct Case {
  int64_t N, heads, head_dim, cache_rows;
  int64_t pad = 0;
};
const Case kCases[] = {{0, 1, 4, 3}, {1, 1, 1, 1}, {5, 2, 6, 9, 3}, {40, 4, 32, 64, 128}, {300, 3, 20, 300}};

View<float, 3> heads_of(GuardedMatrix& x, const Case& c, int64_t rows) {
  return {x.view().data(), {rows, c.heads, c.head_dim}, {x.view().stride(0), c.head_dim, 1}};
}

TEST(KvStore, CopiesEachTokenToItsRowAndTouchesNoOther) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.N) + " x " + std::to_string(c.heads) + " x " + std::to_string(c.head_dim));
    Random random(static_cast<uint64_t>(c.N + c.head_dim));
    const int64_t width = c.heads * c.head_dim;
    const auto values = random.normals(c.N * width), before = random.normals(c.cache_rows * width);
    std::vector<int32_t> rows;  // 7 has no factor in common with the cache's rows
    for (int64_t n = 0; n < c.N; ++n) rows.push_back(static_cast<int32_t>((n * 7 + 1) % c.cache_rows));
    auto expected = before;
    reference::kv_store(values, rows, width, expected);
    for_each_context([&](Context& ctx) {
      for (const bool is_aligned : {false, true}) {
        GuardedMatrix x(c.N, width, values, c.pad, is_aligned ? 0 : 1);
        GuardedMatrix cache(c.cache_rows, width, before, is_aligned ? 4 : 1, is_aligned ? 0 : 2);
        kv_store(ctx, heads_of(x, c, c.N), {rows.data(), {c.N}}, heads_of(cache, c, c.cache_rows));
        EXPECT_EQ(cache.values(), expected);
        EXPECT_TRUE(cache.intact());
      }
    });
  }
}

TEST(KvStore, ShapesThatDisagree) {
  Context ctx = testing::test_context(1);
  std::vector<float> memory(64);
  const std::vector<int32_t> rows(2);
  const View<float, 3> x(memory.data(), {2, 1, 8});
  EXPECT_THROW(kv_store(ctx, x, {rows.data(), {1}}, x), Error);
  EXPECT_THROW(kv_store(ctx, x, {rows.data(), {2}}, View<float, 3>(memory.data(), {2, 2, 8})), Error);
  EXPECT_THROW(kv_store(ctx, x, {rows.data(), {2}}, View<float, 3>(memory.data(), {2, 1, 4})), Error);
}

TEST(KvStore, RowsOutsideTheCache) {
  Context ctx = testing::test_context(1);
  const std::vector<float> values(8, 1);
  const View<const float, 3> x(values.data(), {2, 1, 4});
  for (const int32_t row : {-1, 2}) {
    testing::Guarded<float> memory(8);
    memory.assign(std::vector<float>(8));
    const std::vector<int32_t> rows{0, row};
    const auto store = [&] { kv_store(ctx, x, {rows.data(), {2}}, {memory.get(), {2, 1, 4}}); };
    if (testing::test_device()) {  // stores what it can
      store();
      EXPECT_EQ(memory.values(), (std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0}));
    } else {
      testing::expect_error(ErrorKind::shape, "row " + std::to_string(row) + " of a cache of 2", store);
      EXPECT_EQ(memory.values(), std::vector<float>(8)) << "nothing was written";
    }
    EXPECT_TRUE(memory.intact());
  }
}

}  // namespace
}  // namespace keel
