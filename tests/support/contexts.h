#pragma once

#include <string>

#include <gtest/gtest.h>

#include "keel/kernels/common/context.h"
#include "support/test_device.h"

namespace keel::testing {

/// body(ctx) for every instruction set that this processor runs, with 1, 2 and 3 threads; or on the device that the tests
/// are asked to run on.
template <class Body>
void for_each_context(Body body) {
  if (const auto device = test_device()) {
    Context ctx(*device, 1);
    return body(ctx);
  }
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (!isa_available(isa)) continue;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(std::string(isa_name(isa)) + ", threads " + std::to_string(threads));
      Context ctx(threads, isa);
      body(ctx);
    }
  }
}

}  // namespace keel::testing
