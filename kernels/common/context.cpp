#include "keel/kernels/common/context.h"

#include <omp.h>

#include "keel/base/error.h"
#include "keel/kernels/matmul/matmul_cache.h"

namespace keel {

Context::Context(int threads, Isa isa) : threads_(threads), isa_(isa), matmul_cache_(std::make_unique<MatmulCache>()) {
  if (threads < 1) throw Error(ErrorKind::usage, "a context needs at least one thread");
  if (!isa_available(isa))
    throw Error(ErrorKind::device, "this processor does not run that instruction set", isa_name(isa));
  omp_set_num_threads(threads);  // what oneDNN goes by
}

Context::~Context() = default;

}  // namespace keel
