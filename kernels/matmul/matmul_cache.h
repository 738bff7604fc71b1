#pragma once

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "keel/kernels/common/context.h"
#include "keel/kernels/matmul/matmul.h"

namespace keel {

/// Products of one thread by shape and strides. Internal to matmul_onednn.cpp; its own file
/// because Context destroys it.
struct Context::MatmulCache {
  /// A primitive with its arguments; only the addresses change from call to call.
  struct Product {
    dnnl::primitive primitive;
    dnnl::memory a, b, c, scratchpad;
  };
  struct Hash {
    size_t operator()(const MatmulShape&) const;
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<MatmulShape, Product, Hash> products;

  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<void, Free> scratchpad;
  int64_t scratchpad_bytes = 0;
  std::unique_ptr<float, Free> buffer;  ///< sums of parts of products that a team of threads shares
  int64_t buffer_floats = 0;
  bool packs = false;  ///< some product runs by the library's packing code, which allocates during the call
};

}  // namespace keel
