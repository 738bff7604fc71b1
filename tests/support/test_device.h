#pragma once

#include <optional>
#include <vector>

#include "keel/kernels/common/context.h"

namespace keel::testing {

/// The device that KEEL_TEST_DEVICE (cuda, cuda-emulated) asks the tests of operations to run on; none: the CPU.
std::optional<DeviceChoice> test_device();

/// Of the device that tests are to run on or, on the CPU, with these threads and instruction set.
inline Context test_context(int threads, Isa isa = best_isa()) {
  if (const auto device = test_device()) return Context(*device, threads);
  return Context(threads, isa);
}

/// The instruction sets that this processor runs; for a device, one that says nothing.
inline std::vector<Isa> isas_to_test() {
  if (test_device()) return {best_isa()};
  std::vector<Isa> found;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) found.push_back(isa);
  }
  return found;
}

/// A context like `ctx` with one thread.
inline Context single_threaded(const Context& ctx) {
  if (const auto device = test_device()) return Context(*device, 1);
  return Context(1, ctx.isa());
}

}  // namespace keel::testing
