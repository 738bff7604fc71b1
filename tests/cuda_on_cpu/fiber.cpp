#include "fiber.h"

#include <pthread.h>

#include "sanitizers.h"

#if !defined(KEEL_EMULATION_UCONTEXT)
// void keel_emulation_change(void** save, void* to): saves the registers that a callee keeps and takes the other stack.
// A few ns; swapcontext takes 220, as it calls the system for the signal mask.
extern "C" __attribute__((visibility("hidden"))) void keel_emulation_change(void** save, void* to);
asm(R"(
.text
.p2align 4
.hidden keel_emulation_change
.globl keel_emulation_change
.type keel_emulation_change, @function
keel_emulation_change:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size keel_emulation_change, .-keel_emulation_change
)");
#endif

namespace cuda_on_cpu {

void prepare(Fiber& fiber, void (*entry)(), size_t offset) {
  char* top = fiber.stack + fiber.stack_bytes - offset;
#if defined(KEEL_EMULATION_UCONTEXT)
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = static_cast<size_t>(top - fiber.stack);
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#else
  constexpr int kSavedRegisters = 6;
  auto** slot = reinterpret_cast<void**>(top);
  *--slot =
      nullptr;  // the entry's return address: where unwinding ends; after `ret` the stack is aligned as for a call
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--slot = nullptr;
  fiber.stack_pointer = slot;
#endif
  fiber.fake_stack = nullptr;
}

void change(Fiber& from, Fiber& to, [[maybe_unused]] bool leaving_for_good) {
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

void arrived_first() {
#if defined(KEEL_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

void describe_host([[maybe_unused]] Fiber& fiber) {
#if defined(KEEL_EMULATION_ASAN)
  if (fiber.stack == nullptr) {
    pthread_attr_t attributes;
    void* bottom = nullptr;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &fiber.stack_bytes);
    pthread_attr_destroy(&attributes);
    fiber.stack = static_cast<char*>(bottom);
  }
#endif
#if defined(KEEL_EMULATION_TSAN)
  fiber.tsan = __tsan_get_current_fiber();
#endif
}

}  // namespace cuda_on_cpu
