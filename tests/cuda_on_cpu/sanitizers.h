#pragma once

// What sanitizers are told. The emulation itself is compiled without them (KEEL_EMULATION_ASAN and _TSAN say which one
// the kernels are compiled with); it reports its fibers, its memory and its barriers instead.

#include <cstddef>

#if defined(KEEL_EMULATION_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_size);
void __asan_poison_memory_region(const volatile void* address, size_t size);
void __asan_unpoison_memory_region(const volatile void* address, size_t size);
}
#endif
#if defined(KEEL_EMULATION_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace cuda_on_cpu {

inline void poison([[maybe_unused]] const void* address, [[maybe_unused]] size_t bytes) {
#if defined(KEEL_EMULATION_ASAN)
  __asan_poison_memory_region(address, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* address, [[maybe_unused]] size_t bytes) {
#if defined(KEEL_EMULATION_ASAN)
  __asan_unpoison_memory_region(address, bytes);
#endif
}
/// What happened before release(x) happens before what follows acquire(x).
inline void release([[maybe_unused]] void* address) {
#if defined(KEEL_EMULATION_TSAN)
  __tsan_release(address);
#endif
}
inline void acquire([[maybe_unused]] void* address) {
#if defined(KEEL_EMULATION_TSAN)
  __tsan_acquire(address);
#endif
}

#if defined(KEEL_EMULATION_TSAN)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(KEEL_EMULATION_ASAN)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace cuda_on_cpu
