#include "keel/kernels/cast/cast.h"

#include <bit>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/cast/cast_ref.h"
#include "support/contexts.h"
#include "support/guarded_matrix.h"

namespace keel {
namespace {

using testing::for_each_context;
using testing::Guarded;
using testing::GuardedMatrix;
using testing::Random;

/// bf16 in the same frame as GuardedMatrix.
class HalfMatrix {
 public:
  HalfMatrix(int64_t rows, int64_t columns, int64_t pad = 0, int64_t misalign = 0)
      : rows_(rows), columns_(columns), stride_(columns + pad), memory_(rows * stride_, misalign) {
    for (int64_t i = 0; i < rows * stride_; ++i) memory_.get()[i] = kUnwritten;
  }
  View<Bf16, 2> view() { return {reinterpret_cast<Bf16*>(memory_.get()), {rows_, columns_}, {stride_, 1}}; }
  uint16_t& at(int64_t i) { return memory_.get()[i / columns_ * stride_ + i % columns_]; }
  bool intact() {
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      if (i % stride_ >= columns_ && memory_.get()[i] != kUnwritten) return false;
    }
    return static_cast<bool>(memory_.intact());
  }

 private:
  static constexpr uint16_t kUnwritten = 0x5A5B;
  int64_t rows_, columns_, stride_;
  Guarded<uint16_t> memory_;
};

/// Every bf16, what lies halfway between it and the next and one fp32 to either side of both, infinities and NaNs included.
std::vector<float> all_roundings() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

void expect_narrowed(uint16_t found, float from) {
  const double rounded = reference::round_to_bf16(from), value = reference::value_of_bf16(found);
  if (std::isnan(from)) {
    ASSERT_TRUE(std::isnan(value)) << std::bit_cast<uint32_t>(from);
    return;
  }
  ASSERT_TRUE(value == rounded && std::signbit(value) == std::signbit(from)) << from << " became " << value;
}

TEST(Cast, EveryRounding) {
  const std::vector<float> values = all_roundings();
  const int64_t columns = 192, rows = std::ssize(values) / columns;
  ASSERT_EQ(rows * columns, std::ssize(values));
  for_each_context([&](Context& ctx) {
    HalfMatrix to(rows, columns);
    narrow(ctx, {values.data(), {rows, columns}}, to.view());
    for (int64_t i = 0; i < rows * columns; ++i) ASSERT_NO_FATAL_FAILURE(expect_narrowed(to.at(i), values[i]));
  });
}

/// The cases that are worked out by hand: 1 + 2^-8 and 1 + 3 2^-8 are halfway, 3.4028234e38 is beyond the largest.
TEST(Cast, KnownRoundings) {
  const std::pair<float, uint16_t> known[] = {{1.00390625F, 0x3F80},    {1.01171875F, 0x3F82}, {3.4028234e38F, 0x7F80},
                                              {-3.4028234e38F, 0xFF80}, {-0.0F, 0x8000},       {1e-40F, 0x0001},
                                              {70000, 0x4789}};
  for_each_context([&](Context& ctx) {
    for (const auto& [value, bits] : known) {
      Bf16 narrowed{};
      narrow(ctx, {&value, {1, 1}}, {&narrowed, {1, 1}});
      EXPECT_EQ(narrowed.bits, bits) << value;
    }
  });
}

TEST(Cast, EveryBf16ComesBack) {
  const int64_t columns = 256, rows = 256;
  for_each_context([&](Context& ctx) {
    HalfMatrix from(rows, columns), back(rows, columns);
    for (int64_t i = 0; i < rows * columns; ++i) from.at(i) = static_cast<uint16_t>(i);
    GuardedMatrix wide(rows, columns);
    widen(ctx, from.view(), wide.view());
    narrow(ctx, wide.view(), back.view());
    const std::vector<float> values = wide.values();
    for (int64_t i = 0; i < rows * columns; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), static_cast<uint32_t>(i) << 16);
      const bool is_nan = std::isnan(values[i]);
      ASSERT_EQ(back.at(i), is_nan ? i | 0x40 : i);
    }
  });
}

TEST(Cast, RowsThatAreStridedOrNotAligned) {
  struct Case {
    int64_t rows, columns, pad = 0, misalign = 0, skew = 1;
  };
  for (const Case& c : {Case{1, 1},
                        {3, 15, 1, 1},
                        {2, 16},
                        {5, 17, 20, 3},
                        {7, 64, 64, 0},
                        {300, 129, 3, 5},
                        {70, 36, 0, 0, 0},
                        {2, 1028, 4, 4, 0}}) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns));
    Random random(static_cast<uint64_t>(31 * c.rows + c.columns));
    const std::vector<float> values = random.normals(c.rows * c.columns, 1, 3);
    for_each_context([&](Context& ctx) {
      GuardedMatrix from(c.rows, c.columns, values, c.pad, c.misalign),
          back(c.rows, c.columns, c.pad + 2 * c.skew, c.misalign);
      HalfMatrix to(c.rows, c.columns, c.pad + c.skew, c.misalign);
      narrow(ctx, from.view(), to.view());
      widen(ctx, to.view(), back.view());
      const std::vector<float> widened = back.values();
      for (int64_t i = 0; i < c.rows * c.columns; ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_narrowed(to.at(i), values[i]));
        ASSERT_EQ(widened[i], reference::value_of_bf16(to.at(i)));
      }
      EXPECT_TRUE(to.intact() && back.intact() && from.intact());
    });
  }
}

TEST(Cast, ShapesThatDisagree) {
  Context ctx(1);
  std::vector<float> floats(16);
  std::vector<Bf16> halves(16);
  const View<float, 2> x(floats.data(), {2, 8});
  const View<Bf16, 2> wrong(halves.data(), {2, 7});
  EXPECT_THROW(narrow(ctx, x, wrong), Error);
  EXPECT_THROW(narrow(ctx, x, {}), Error);
  EXPECT_THROW(widen(ctx, wrong, x), Error);
}

}  // namespace
}  // namespace keel
