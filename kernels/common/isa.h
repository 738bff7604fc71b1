#pragma once

#include "keel/base/export.h"

namespace keel {

/// Instruction sets that the CPU kernels are compiled for. Every file kernels/*/*_cpu.cpp is built once for each of
/// them (KEEL_ISA names the namespace) and the fastest one that the processor runs is chosen when a Context is made.
enum class Isa {
  generic,  ///< the compiler's baseline for the architecture
  avx2,     ///< x86-64-v3: AVX2, FMA
  avx512,   ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
};

/// The best one that this processor and this build have. Environment variable KEEL_ISA=generic|avx2|avx512 asks for
/// another; one that can't run here, or an unknown name, throws Error(usage).
KEEL_API Isa best_isa();
KEEL_API const char* isa_name(Isa isa) noexcept;
/// True if this processor runs it and it was built in.
KEEL_API bool isa_available(Isa isa) noexcept;

}  // namespace keel

/// KEEL_DECLARE_ISA(void f(int x)) declares f in the namespace of each instruction set;
/// KEEL_CALL_ISA(isa, f(x)) calls the right one. Use both inside namespace keel.
#if defined(__x86_64__)
#define KEEL_DECLARE_ISA(...) \
  namespace isa_generic {     \
  __VA_ARGS__;                \
  }                           \
  namespace isa_avx2 {        \
  __VA_ARGS__;                \
  }                           \
  namespace isa_avx512 {      \
  __VA_ARGS__;                \
  }
#define KEEL_CALL_ISA(isa, ...)                           \
  ((isa) == ::keel::Isa::avx512 ? isa_avx512::__VA_ARGS__ \
   : (isa) == ::keel::Isa::avx2 ? isa_avx2::__VA_ARGS__   \
                                : isa_generic::__VA_ARGS__)
#else
#define KEEL_DECLARE_ISA(...) \
  namespace isa_generic {     \
  __VA_ARGS__;                \
  }
#define KEEL_CALL_ISA(isa, ...) ((void)(isa), isa_generic::__VA_ARGS__)
#endif
