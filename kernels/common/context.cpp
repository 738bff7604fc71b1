#include "keel/kernels/common/context.h"

#include <omp.h>

#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/process.h"
#include "keel/kernels/matmul/matmul_cache.h"

namespace keel {
namespace {

/// OpenMP ends the process when it gets no thread. This asks before: all of them stand at the same time.
void require_threads(int threads) {
  std::latch all_started(1);
  std::vector<std::jthread> probes;
  try {
    for (int i = 1; i < threads; ++i) probes.emplace_back([&] { all_started.wait(); });
  } catch (const std::system_error& refused) {
    all_started.count_down();
    throw thread_error(threads, refused);
  }
  all_started.count_down();
}

}  // namespace

Context::Context(int threads, Isa isa) : threads_(threads), isa_(isa), matmul_cache_(std::make_unique<MatmulCache>()) {
  if (threads < 1) throw Error(ErrorKind::usage, "a context needs at least one thread");
  if (!isa_available(isa))
    throw Error(ErrorKind::device, "this processor does not run that instruction set", isa_name(isa));
  require_threads(threads);
  omp_set_num_threads(threads);  // what oneDNN goes by
}

Context::~Context() = default;

void* Context::scratch(int64_t bytes) {
  constexpr int64_t kLine = 64;
  if (scratch_bytes_ < bytes) {
    scratch_.reset();
    scratch_bytes_ = 0;
    const int64_t rounded = (bytes + kLine - 1) / kLine * kLine;
    scratch_.reset(std::aligned_alloc(kLine, static_cast<size_t>(rounded)));
    if (!scratch_) throw Error(ErrorKind::memory, "no memory for " + std::to_string(bytes) + " bytes of scratch");
    scratch_bytes_ = rounded;
  }
  return scratch_.get();
}

}  // namespace keel
