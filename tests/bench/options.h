#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "keel/base/error.h"
#include "keel/kernels/common/context.h"

namespace keel::bench {

/// cpu, cuda or cuda-emulated.
inline DeviceChoice device_named(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda") return {.device = Device::cuda};
  if (name == "cuda-emulated") return {.device = Device::cuda, .backend = CudaBackend::emulated};
  throw Error(ErrorKind::usage, "--device is cpu, cuda or cuda-emulated", name);
}

/// Replaces defaults, texts or whole numbers, by what the command line says as --NAME VALUE, then run(options); the exit
/// code.
template <class Run>
int run_with_options(int argc, char** argv, nlohmann::json options, Run run) {
  const auto refuse = [&](std::string_view problem) {
    fmt::print(stderr, "{}: error: {}\n", argv[0], problem);
    return exit_code(ErrorKind::usage);
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string key(name.starts_with("--") ? name.substr(2) : "");
    if (!options.contains(key)) return refuse(fmt::format("unknown option {}", name));
    if (i + 1 == argc) return refuse(fmt::format("{} without a value", name));
    const std::string_view value = argv[i + 1];
    if (options[key].is_string()) {
      options[key] = value;
      continue;
    }
    int64_t number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (problem != std::errc() || end != value.data() + value.size()) {
      return refuse(fmt::format("{} wants a whole number, not '{}'", name, value));
    }
    options[key] = number;
  }
  try {
    return run(options);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: error: {}\n", argv[0], error.what());
    return exit_code(error.kind());
  }
}

}  // namespace keel::bench
