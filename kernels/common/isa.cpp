#include "keel/kernels/common/isa.h"

#include <cstdlib>
#include <string_view>

#include "keel/base/error.h"

namespace keel {

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

bool isa_available(Isa isa) noexcept {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("x86-64-v3") != 0;
    case Isa::avx512:
      return __builtin_cpu_supports("x86-64-v4") != 0;
  }
  return false;
#else
  return isa == Isa::generic;
#endif
}

Isa best_isa() {
  constexpr Isa kFastestFirst[] = {Isa::avx512, Isa::avx2, Isa::generic};
  if (const char* wanted = std::getenv("KEEL_ISA"); wanted != nullptr && *wanted != '\0') {
    for (Isa isa : kFastestFirst) {
      if (std::string_view(wanted) != isa_name(isa)) continue;
      if (!isa_available(isa))
        throw Error(ErrorKind::usage, "this processor has no " + std::string(wanted), "KEEL_ISA");
      return isa;
    }
    throw Error(ErrorKind::usage, "unknown instruction set '" + std::string(wanted) + "'", "KEEL_ISA",
                "generic, avx2 or avx512");
  }
  for (Isa isa : kFastestFirst) {
    if (isa_available(isa)) return isa;
  }
  return Isa::generic;
}

}  // namespace keel
