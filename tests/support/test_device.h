#pragma once

#include <optional>

#include "keel/kernels/common/context.h"

namespace keel::testing {

/// The device that KEEL_TEST_DEVICE (cuda, cuda-emulated) asks the tests of operations to run on; none: the CPU.
std::optional<DeviceChoice> test_device();

/// A context of that device, or of the CPU with this many threads.
inline Context context(int threads) {
  if (const auto device = test_device()) return Context(*device, threads);
  return Context(threads);
}

/// A context like `ctx` with one thread.
inline Context single_threaded(const Context& ctx) {
  if (const auto device = test_device()) return Context(*device, 1);
  return Context(1, ctx.isa());
}

}  // namespace keel::testing
