#include "device_option.h"

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/process.h"

namespace keel {
namespace {

/// Whether the first GPU takes a kernel. Where one is there that does not, the CPU in its place is worth a warning.
bool find_usable_gpu() {
  if (host_info().gpus.empty()) return false;
  try {
    const Context trial({.device = Device::cuda}, 1);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage) throw;
    log::warn("the GPU is not used: {}", error.what());
    return false;
  }
  return true;
}

/// Tried once: that takes a moment, and one warning is enough.
bool gpu_is_usable() {
  static const bool is_usable = find_usable_gpu();
  return is_usable;
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
