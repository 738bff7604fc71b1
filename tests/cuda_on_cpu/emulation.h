#pragma once

// How the emulated device behaves, for tests. Environment variables set the same, see README.md: what they may not be is
// refused by keel::Error(usage) when the device is first asked for.

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

/// The order in which the threads of a block, and the blocks of a grid, run between barriers. A correct kernel gives the
/// same bits in each.
enum class Order {
  forward,  ///< from the first on, round robin: warps advance together
  reverse,  ///< from the last on, a warp as far as barriers let it
  random,   ///< any that can run, by the seed
};

enum class Streams {
  eager,  ///< work runs when it is enqueued
  lazy,   ///< work runs as late as the interface allows
};

struct Options {
  Order order = Order::forward;           ///< KEEL_EMULATION_ORDER=forward|reverse|random
  uint64_t seed = 1;                      ///< KEEL_EMULATION_SEED
  Streams streams = Streams::eager;       ///< KEEL_EMULATION_STREAMS=eager|lazy
  bool launch_blocking = false;           ///< CUDA_LAUNCH_BLOCKING=0|1: a launch returns when its kernel is done
  bool guard = false;                     ///< KEEL_EMULATION_GUARD=0|1: host code that touches device memory faults
  int workers = 1;                        ///< KEEL_EMULATION_WORKERS: host threads that run the blocks of a grid
  size_t shared_bytes = 227 * 1024;       ///< KEEL_EMULATION_SHARED: of shared memory that a block may ask for
  size_t memory_bytes = size_t{8} << 30;  ///< KEEL_EMULATION_MEMORY: what the device says it has
};

}  // namespace cuda_on_cpu

// By these names also in libkeel_cuda_emulated.so (keel::detail::cuda_symbol). Change options between launches only;
// guard and memory_bytes before the first allocation.
extern "C" __attribute__((visibility("default"))) cuda_on_cpu::Options* cuda_on_cpu_options();
/// Graphs launched so far, so that tests see that there were some.
extern "C" __attribute__((visibility("default"))) uint64_t cuda_on_cpu_graph_launches();
/// Bytes of the device that were asked for and not freed.
extern "C" __attribute__((visibility("default"))) int64_t cuda_on_cpu_allocated_bytes();
/// As a new process would find the device: no error, no stream or event, no memory. For tests of what goes wrong.
extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_reset();
