#include "keel/kernels/memory/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "keel/kernels/common/cuda_device.h"

namespace keel::detail {

void copy_to_device_bytes(Context& ctx, const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return;
  if (ctx.device() == Device::cuda) return cuda::copy_to_device(ctx.queue(), from, to, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void copy_to_host_bytes(Context& ctx, const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return;
  if (ctx.device() == Device::cuda) return cuda::copy_to_host(ctx.queue(), from, to, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void zero_bytes(Context& ctx, void* to, int64_t bytes) {
  if (bytes == 0) return;
  if (ctx.device() == Device::cuda) return cuda::zero(ctx.queue(), to, bytes);
  std::memset(to, 0, static_cast<size_t>(bytes));
}

void* allocate_pinned(Context& ctx, int64_t bytes) {
  const bool on_cpu = ctx.device() == Device::cpu;
  void* memory = on_cpu ? std::malloc(static_cast<size_t>(std::max<int64_t>(bytes, 1)))
                        : cuda::allocate_pinned(ctx.queue(), bytes);
  if (memory == nullptr) throw Error(ErrorKind::memory, "no memory for " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return memory;
}

void release_pinned(Context& ctx, void* memory) noexcept {
  if (ctx.device() == Device::cuda) return cuda::release_pinned(ctx.queue(), memory);
  std::free(memory);
}

}  // namespace keel::detail

namespace keel {

Mark::Mark(Context& ctx) : ctx_(ctx) {
  if (ctx.device() == Device::cuda) mark_ = cuda::make_mark(ctx.queue());
}

Mark::~Mark() {
  if (mark_ != nullptr) cuda::drop_mark(mark_);
}

void Mark::set() {
  if (mark_ != nullptr) return cuda::set_mark(ctx_.queue(), *mark_);
  time_ = std::chrono::steady_clock::now();
}

void Mark::wait() {
  if (mark_ != nullptr) cuda::wait_for_mark(*mark_);
}

double Mark::seconds_since(const Mark& earlier) const {
  if (mark_ != nullptr) return cuda::seconds_between(*earlier.mark_, *mark_);
  return std::chrono::duration<double>(time_ - earlier.time_).count();
}

void* allocate_on_device(Context& ctx, int64_t bytes, const std::string& hint) {
  try {
    void* memory = cuda::allocate(ctx.queue(), bytes);
    detail::zero_bytes(ctx, memory, bytes);
    return memory;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    throw Error(ErrorKind::memory, "the GPU has no " + std::to_string(bytes) + " bytes left", "", hint);
  }
}

int64_t free_device_bytes(Context& ctx) {
  return cuda::device_info(ctx.queue()).free_bytes;
}

int64_t peak_device_bytes(Context&) {
  return cuda::peak_bytes();
}

void release_on_device(Context& ctx, void* memory) {
  cuda::release(ctx.queue(), memory);
}

}  // namespace keel
