#pragma once

// Stacks to run on, and changing from one to another.

#include <cstddef>

#if !defined(__x86_64__) && !defined(KEEL_EMULATION_UCONTEXT)
#define KEEL_EMULATION_UCONTEXT
#endif
#if defined(KEEL_EMULATION_UCONTEXT)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

/// A place to come back to: registers and a stack.
struct Fiber {
#if defined(KEEL_EMULATION_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
  char* stack = nullptr;  ///< its lowest byte; of the host's stack, once it is known
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  ///< of AddressSanitizer
  void* tsan = nullptr;        ///< of ThreadSanitizer
};

/// Lets the next change to the fiber call `entry`, which does not return. The stack begins `offset` bytes below its end.
void prepare(Fiber& fiber, void (*entry)(), size_t offset);

/// Leaves one fiber for another. Returns when someone changes back; never if `leaving_for_good`.
void change(Fiber& from, Fiber& to, bool leaving_for_good = false);
/// The first thing that `entry` calls.
void arrived_first();

/// Describes the running host thread, so that fibers can change back to it.
void describe_host(Fiber& fiber);

}  // namespace cuda_on_cpu
