#pragma once

#include "keel/kernels/common/context.h"

namespace keel {

/// Matrix product primitives by shape and strides. Internal to kernels/.
struct Context::MatmulCache {};

}  // namespace keel
