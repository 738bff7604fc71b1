#pragma once

namespace keel {

/// For loops that wait for another thread: leaves the core's other thread the core for a moment.
[[gnu::always_inline]] inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace keel
