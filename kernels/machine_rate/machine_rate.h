#pragma once

#include <cstdint>

#include "keel/base/export.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/isa.h"

namespace keel {

// What a machine can do at most, to compare operations with. Each measurement starts threads of its own, has them work
// side by side in passes that begin together, for about `seconds` and three passes at least, and takes the fastest pass:
// other work on the machine only slows passes down. Error(device) or Error(memory) if threads or memory are refused.

/// Bytes a second between memory and `threads` threads: a = b + s c over three arrays of floats of `bytes` in all,
/// each byte counted once (McCalpin's STREAM triad; that writing a line reads it first is not counted).
KEEL_API double measure_bandwidth(Isa isa, int threads, int64_t bytes, double seconds);

/// Bytes a second that `threads` threads read of one array of `bytes`: what bounds an operation that hardly writes.
KEEL_API double measure_reading(Isa isa, int threads, int64_t bytes, double seconds);

/// Bytes for the arrays above so that caches hold little of them: three times the largest cache, and 192 MiB, at
/// least; at most a quarter of the memory that this process may use.
KEEL_API int64_t beyond_caches_bytes();

/// FLOP/s of multiply-adds, two each, on values that stay in registers.
KEEL_API double measure_arithmetic(Isa isa, int threads, double seconds);

/// The same two of the GPU of a context, as passes that it times itself (cuda_device.h), one at a time: the fastest of as
/// many as take about `seconds`, of three at least. Arrays are larger than its second-level cache.
KEEL_API double measure_gpu_bandwidth(Context& ctx, double seconds);
KEEL_API double measure_gpu_arithmetic(Context& ctx, double seconds);

}  // namespace keel
