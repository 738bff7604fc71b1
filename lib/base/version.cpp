#include "keel/base/version.h"

namespace keel {

const char* version() noexcept {
  return KEEL_VERSION;
}

}  // namespace keel
