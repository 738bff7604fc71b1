#include "device_option.h"

#include <fmt/format.h>

#include "keel/base/process.h"

namespace keel {
namespace {

bool gpu_is_usable() {
  if (!has_cuda_backend(CudaBackend::device) || host_info().gpus.empty()) return false;
  return cuda_device_count() > 0;
}

}  // namespace

DeviceChoice device_choice(const Options& options) {
  const std::string name = device_of(options);
  if (name == "auto") return {.device = gpu_is_usable() ? Device::cuda : Device::cpu};
  if (name == "cpu") return {};
  if (name == "cuda-emulated") return {.device = Device::cuda, .backend = CudaBackend::emulated};
  const size_t colon = name.find(':');
  return {.device = Device::cuda, .index = colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1))};
}

std::string to_string(const DeviceChoice& choice) {
  if (choice.device == Device::cpu) return "cpu";
  return choice.backend == CudaBackend::emulated ? "cuda-emulated" : fmt::format("cuda:{}", choice.index);
}

}  // namespace keel
