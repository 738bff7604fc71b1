#include "keel/kernels/common/counted_memory.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "keel/kernels/common/cuda_queue.h"

namespace keel {
namespace {

struct Counted {
  std::mutex mutex;
  std::map<void*, int64_t> bytes;
  int64_t now = 0, peak = 0;
};

Counted& counted() {
  static Counted all;
  return all;
}

}  // namespace

void* allocate_counted(int64_t bytes, const char* what) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(bytes)), what);
  Counted& all = counted();
  const std::lock_guard lock(all.mutex);
  all.bytes[memory] = bytes;
  all.now += bytes;
  all.peak = std::max(all.peak, all.now);
  return memory;
}

void free_counted(void* memory) noexcept {
  if (memory == nullptr) return;
  Counted& all = counted();
  const std::lock_guard lock(all.mutex);
  (void)cudaFree(memory);
  const auto found = all.bytes.find(memory);
  if (found == all.bytes.end()) return;
  all.now -= found->second;
  all.bytes.erase(found);
}

int64_t keel_cuda_peak_bytes() {
  const std::lock_guard lock(counted().mutex);
  return counted().peak;
}

}  // namespace keel
