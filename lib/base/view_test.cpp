#include "keel/base/view.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <type_traits>

namespace keel {
namespace {

std::array<float, 24> numbered() {
  std::array<float, 24> values{};
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(View, IsRowMajor) {
  auto values = numbered();
  const View<float, 3> view(values.data(), {2, 3, 4});
  EXPECT_EQ(view.strides(), (std::array<int64_t, 3>{12, 4, 1}));
  EXPECT_EQ(view(1, 2, 3), 23.0F);
  EXPECT_EQ(view(1, 0, 2), 14.0F);
  EXPECT_EQ(view.size(), 24);
  EXPECT_TRUE(view.is_dense());
}

TEST(View, SlicesAndColumnsKeepTheStrides) {
  auto values = numbered();
  const View<float, 2> view(values.data(), {4, 6});
  const auto rows = view.slice(1, 3);
  EXPECT_EQ(rows.extent(0), 2);
  EXPECT_EQ(rows(0, 0), 6.0F);
  EXPECT_TRUE(rows.is_dense());
  const auto columns = view.columns(2, 5);
  EXPECT_EQ(columns.extent(1), 3);
  EXPECT_EQ(columns(1, 0), 8.0F);
  EXPECT_EQ(columns.stride(0), 6);
  EXPECT_FALSE(columns.is_dense());
  EXPECT_EQ(view.slice(2, 2).size(), 0);
}

TEST(View, AnAxisOfOneMayHaveAnyStride) {
  auto values = numbered();
  EXPECT_TRUE((View<float, 2>(values.data(), {1, 6}, {100, 1}).is_dense()));
  EXPECT_FALSE((View<float, 2>(values.data(), {2, 6}, {100, 1}).is_dense()));
}

TEST(View, OffsetsAre64Bits) {
  const View<char, 2> view(nullptr, {3'000'000, 3'000'000});
  EXPECT_EQ(view.size(), 9'000'000'000'000);
  EXPECT_FALSE(static_cast<bool>(view));
}

TEST(View, ConvertsToConstAndNeverBetweenMemories) {
  using Device = View<float, 2>;
  EXPECT_TRUE((std::is_convertible_v<Device, View<const float, 2>>));
  EXPECT_FALSE((std::is_convertible_v<View<const float, 2>, Device>));
  EXPECT_FALSE((std::is_convertible_v<Device, HostView<float, 2>>));
  EXPECT_FALSE((std::is_convertible_v<HostView<float, 2>, Device>));
  EXPECT_TRUE(std::is_trivially_copyable_v<Device>);
}

#ifndef NDEBUG
TEST(ViewDeathTest, ChecksBoundsInDebugBuilds) {
  auto values = numbered();
  const View<float, 2> view(values.data(), {4, 6});
  EXPECT_DEATH((void)view(4, 0), "");
  EXPECT_DEATH((void)view(0, -1), "");
  EXPECT_DEATH((void)view.slice(3, 5), "");
}
#endif

}  // namespace
}  // namespace keel
