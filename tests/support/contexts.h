#pragma once

#include <string>

#include <gtest/gtest.h>

#include "keel/kernels/common/context.h"

namespace keel::testing {

/// body(ctx) for every instruction set that this processor runs, with 1, 2 and 3 threads.
template <class Body>
void for_each_context(Body body) {
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
