#include "keel/train/plan_devices.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "keel/base/error.h"

namespace keel {
namespace {

TEST(PlanDevices, EachIsFoundByItsName) {
  std::set<std::string_view> names;
  for (const PlanDevice& device : plan_devices()) {
    EXPECT_EQ(find_plan_device(device.name), &device);
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
  }
  EXPECT_EQ(find_plan_device("cpu"), nullptr);
  EXPECT_EQ(plan_device_names().size(), plan_devices().size() + 1);
  EXPECT_EQ(plan_device_names().front(), "cpu");
}

/// What no GPU contradicts: a slip of a factor 10 or a rate with sparsity shows.
TEST(PlanDevices, FiguresBelongTogether) {
  for (const PlanDevice& device : plan_devices()) {
    SCOPED_TRACE(std::string(device.name));
    EXPECT_GE(device.memory_bytes, int64_t{20} << 30);
    EXPECT_LE(device.memory_bytes, int64_t{200} << 30);
    EXPECT_GE(device.tf32_flops_per_second, device.fp32_flops_per_second);
    EXPECT_GE(device.bf16_flops_per_second, 1.9 * device.tf32_flops_per_second);
    EXPECT_LE(device.bf16_flops_per_second, 2.1 * device.tf32_flops_per_second);
    EXPECT_GE(device.fp32_flops_per_second, 15e12);
    EXPECT_LE(device.fp32_flops_per_second, 150e12);
    EXPECT_GE(device.memory_bytes_per_second, 250e9);
    EXPECT_LE(device.memory_bytes_per_second, 10e12);
  }
}

TEST(PlanDevices, DriversReportLessThanTheNameSays) {
  EXPECT_LT(find_plan_device("a100-40")->memory_bytes, int64_t{40} << 30);
  EXPECT_LT(find_plan_device("a100-80")->memory_bytes, int64_t{80} << 30);
  EXPECT_LT(find_plan_device("h200")->memory_bytes, int64_t{141} << 30);
  EXPECT_LT(find_plan_device("rtx4090")->memory_bytes, int64_t{24} << 30);
}

TEST(PlanDevices, AnotherNameIsRefusedWithTheNearest) {
  for (const auto& [typed, near] :
       {std::pair{"h20", "h200"}, {"a100-8", "a100-80"}, {"rtx490", "rtx4090"}, {"H200", "h200"}}) {
    try {
      find_plan_device(typed);
      ADD_FAILURE() << typed;
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), kExitUsage);
      EXPECT_NE(std::string(error.what()).find("did you mean '" + std::string(near) + "'"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace keel
