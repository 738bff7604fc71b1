#pragma once

// Stacks to run on, and changing from one to another.

#include <cstddef>

#if !defined(__x86_64__) && !defined(KEEL_EMULATION_UCONTEXT)
#define KEEL_EMULATION_UCONTEXT
#endif
#if defined(KEEL_EMULATION_UCONTEXT)
#include <ucontext.h>
#else
/// Saves the registers that a callee keeps, and the stack, and takes the other stack with its registers: a few ns.
/// swapcontext takes 220, as it calls the system for the signal mask.
extern "C" __attribute__((visibility("hidden"))) void keel_emulation_change(void** save, void* to);
#endif

#include "sanitizers.h"

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
inline void change(Fiber& from, Fiber& to, [[maybe_unused]] bool leaving_for_good) {
#if defined(KEEL_EMULATION_ASAN)
  __sanitizer_start_switch_fiber(leaving_for_good ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(KEEL_EMULATION_TSAN)
  constexpr unsigned kNoSynchronisation = 1;
  __tsan_switch_to_fiber(to.tsan, kNoSynchronisation);
#endif
#if defined(KEEL_EMULATION_UCONTEXT)
  swapcontext(&from.context, &to.context);
#else
  keel_emulation_change(&from.stack_pointer, to.stack_pointer);
#endif
#if defined(KEEL_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

/// The first thing that `entry` calls.
inline void arrived_first() {
#if defined(KEEL_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

/// Describes the running host thread, so that fibers can change back to it.
void describe_host(Fiber& fiber);

}  // namespace cuda_on_cpu
