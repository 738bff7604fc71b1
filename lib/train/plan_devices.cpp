#include "keel/train/plan_devices.h"

#include <array>

#include "keel/base/error.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

constexpr int64_t gib(double count) {
  return static_cast<int64_t>(count * (int64_t{1} << 30));
}

/// Peaks and bandwidths: the data sheet named beside each. Where it gives tensor-core rates with sparsity alone, half
/// of them. Memory: what CUDA reports as the total of such a device, the least that drivers were seen to report.
constexpr std::array kDevices = {
    // NVIDIA A100 Tensor Core GPU data sheet, SXM4
    PlanDevice{"a100-40", "NVIDIA A100 SXM 40 GB", gib(39.39), 19.5e12, 156e12, 312e12, 1.555e12},
    PlanDevice{"a100-80", "NVIDIA A100 SXM 80 GB", gib(79.15), 19.5e12, 156e12, 312e12, 2.039e12},
    // NVIDIA H100 Tensor Core GPU architecture white paper, SXM5
    PlanDevice{"h100", "NVIDIA H100 SXM", gib(79.11), 67e12, 494.7e12, 989.4e12, 3.35e12},
    // NVIDIA H200 Tensor Core GPU data sheet, SXM: the H100's cores
    PlanDevice{"h200", "NVIDIA H200 SXM", gib(139.72), 67e12, 494.7e12, 989.4e12, 4.8e12},
    // NVIDIA HGX B200 data sheet, an eighth of the board; bandwidth by the device's bus, 7680 bits at 3996 MHz
    PlanDevice{"b200", "NVIDIA B200 SXM", gib(178.35), 75e12, 1.125e15, 2.25e15, 7.67e12},
    // NVIDIA L4 Tensor Core GPU data sheet
    PlanDevice{"l4", "NVIDIA L4", gib(22.03), 30.3e12, 60e12, 121e12, 300e9},
    // NVIDIA L40S GPU data sheet
    PlanDevice{"l40s", "NVIDIA L40S", gib(44.39), 91.6e12, 183e12, 362e12, 864e9},
    // NVIDIA Ada GPU architecture white paper, appendix A
    PlanDevice{"rtx4090", "NVIDIA GeForce RTX 4090", gib(23.52), 82.6e12, 82.6e12, 165.2e12, 1.008e12},
    // NVIDIA RTX Blackwell GPU architecture white paper, appendix A
    PlanDevice{"rtx5090", "NVIDIA GeForce RTX 5090", gib(31.36), 104.8e12, 104.8e12, 209.5e12, 1.792e12},
};

}  // namespace

std::span<const PlanDevice> plan_devices() {
  return kDevices;
}

const PlanDevice* find_plan_device(std::string_view name) {
  if (name == "cpu") return nullptr;
  for (const PlanDevice& device : kDevices) {
    if (device.name == name) return &device;
  }
  throw Error(ErrorKind::usage, "unknown --plan-device " + quoted_name(name), "",
              suggestion(name, plan_device_names()));
}

std::vector<std::string> plan_device_names() {
  std::vector<std::string> names{"cpu"};
  for (const PlanDevice& device : kDevices) names.emplace_back(device.name);
  return names;
}

}  // namespace keel
