#include "keel/model/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "keel/base/error.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

constexpr int64_t kRegionAlignment = 64;

}  // namespace

const char* to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::weights:
      return "weights";
    case MemoryKind::gradients:
      return "gradients";
    case MemoryKind::optimizer:
      return "optimizer";
    case MemoryKind::activations:
      return "activations";
    case MemoryKind::workspace:
      return "workspace";
  }
  return "?";
}

int64_t ArenaPlan::reserve(MemoryKind kind, int64_t count, int64_t element_bytes) {
  int64_t bytes = 0, rounded = 0, total = 0;
  if (count < 0 || __builtin_mul_overflow(count, element_bytes, &bytes) ||
      __builtin_add_overflow(bytes, kRegionAlignment - 1, &rounded) ||
      __builtin_add_overflow(total_, rounded / kRegionAlignment * kRegionAlignment, &total)) {
    throw Error(ErrorKind::memory, "the plan needs more memory than a 64-bit system can address", to_string(kind));
  }
  const int64_t offset = total_;
  bytes_[static_cast<int>(kind)] += total - total_;
  total_ = total;
  return offset;
}

Arena::Arena(const ArenaPlan& plan, const std::string& hint) : bytes_(plan.total_bytes()) {
  if (bytes_ == 0) return;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::memory, "can't allocate " + std::to_string(bytes_) + " bytes", std::strerror(errno), hint);
  }
  madvise(memory, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(memory);
}

Arena::Arena(Context& ctx, const ArenaPlan& plan, const std::string& hint)
    : Arena(ctx.device() == Device::cpu ? plan : ArenaPlan(), hint) {
  if (ctx.device() == Device::cpu || plan.total_bytes() == 0) return;
  base_ = static_cast<std::byte*>(allocate_on_device(ctx, plan.total_bytes(), hint));
  device_ = &ctx;
  bytes_ = plan.total_bytes();
}

Arena::~Arena() {
  if (base_ == nullptr) return;
  if (device_ != nullptr) {
    release_on_device(*device_, base_);
  } else {
    munmap(base_, static_cast<size_t>(bytes_));
  }
}

}  // namespace keel
