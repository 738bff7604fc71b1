#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/kernels/common/any_view.h"

namespace keel {

/// A GPU that --plan-device knows by its maker's figures; no such device need be there.
struct PlanDevice {
  std::string_view name;     ///< as typed: "h200"
  std::string_view title;    ///< "NVIDIA H200 SXM"
  int64_t memory_bytes = 0;  ///< all that the driver reports, less than the name says: part holds its own tables
  /// Dense peaks, multiply and add counted apart: products of fp32 matrices on the ordinary cores, and on the tensor
  /// cores rounded to tf32 or in bf16 with fp32 sums.
  double fp32_flops_per_second = 0, tf32_flops_per_second = 0, bf16_flops_per_second = 0;
  double memory_bytes_per_second = 0;

  /// Peak of the products of a run in this precision; 0: it has no such.
  double product_flops_per_second(ElementType precision) const {
    return precision == ElementType::bf16 ? bf16_flops_per_second : fp32_flops_per_second;
  }
};

KEEL_API std::span<const PlanDevice> plan_devices();

/// Null for "cpu", this machine. Error(usage) for a name that is none of plan_devices().
KEEL_API const PlanDevice* find_plan_device(std::string_view name);

/// "cpu" and the names of plan_devices().
KEEL_API std::vector<std::string> plan_device_names();

}  // namespace keel
