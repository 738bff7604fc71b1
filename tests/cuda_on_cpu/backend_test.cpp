// The emulated backend as programs use it: opened late, through kernels/common.

#include <gtest/gtest.h>

#include <vector>

#include "emulation.h"
#include "keel/base/error.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/cuda_device.h"

namespace keel {
namespace {

const DeviceChoice kEmulated{Device::cuda, CudaBackend::emulated};

ErrorKind kind_of(auto function) {
  try {
    function();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(CudaBackend, IsOpenedByAContext) {
  ASSERT_TRUE(has_cuda_backend(CudaBackend::emulated));
  Context ctx(kEmulated, 1);
  EXPECT_EQ(ctx.device(), Device::cuda);
  EXPECT_EQ(cuda::device_count(), 1);
  const CudaDeviceInfo info = cuda::device_info(ctx.queue());
  EXPECT_STREQ(info.name, "CUDA on CPU (emulated)");
  EXPECT_EQ(info.compute_capability, 90);
  EXPECT_EQ(info.shared_bytes, 227 * 1024);
  EXPECT_EQ(
      info.memory_bytes,
      static_cast<int64_t>(
          reinterpret_cast<cuda_on_cpu::Options* (*)()>(detail::cuda_symbol("cuda_on_cpu_options"))()->memory_bytes));
}

TEST(CudaBackend, CopiesThereAndBack) {
  Context ctx(kEmulated, 1);
  const std::vector<float> sent{1, 2, 3, 4, 5};
  std::vector<float> received(sent.size());
  const auto bytes = static_cast<int64_t>(sent.size() * sizeof(float));
  void* memory = cuda::allocate(ctx.queue(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0U);
  cuda::copy_to_device(ctx.queue(), sent.data(), memory, bytes);
  cuda::zero(ctx.queue(), static_cast<float*>(memory) + 1, sizeof(float));
  cuda::copy_to_host(ctx.queue(), memory, received.data(), bytes);
  ctx.synchronize();
  EXPECT_EQ(received, (std::vector<float>{1, 0, 3, 4, 5}));
  cuda::release(ctx.queue(), memory);
}

TEST(CudaBackend, HostSeesSharedMemory) {
  Context ctx(kEmulated, 1);
  auto* memory = static_cast<float*>(cuda::allocate_shared(ctx.queue(), 4 * sizeof(float)));
  EXPECT_NE(memory[0], memory[0]) << "memory starts as NaN";
  cuda::zero(ctx.queue(), memory, 4 * sizeof(float));
  ctx.synchronize();
  EXPECT_EQ(memory[3], 0);
  cuda::release(ctx.queue(), memory);
}

TEST(CudaBackend, ScratchGrows) {
  Context ctx(kEmulated, 1);
  void* first = ctx.scratch(100);
  EXPECT_EQ(ctx.scratch(50), first);
  void* second = ctx.scratch(1 << 20);
  cuda::zero(ctx.queue(), second, 1 << 20);
  ctx.synchronize();
}

// Thrown in the plug-in, caught in the program: type and kind arrive.
TEST(CudaBackend, ErrorsTravelToTheProgram) {
  Context ctx(kEmulated, 1);
  EXPECT_EQ(kind_of([&] { cuda::allocate(ctx.queue(), int64_t{1} << 50); }), ErrorKind::memory);
  float value = 0;
  EXPECT_EQ(kind_of([&] { cuda::copy_to_device(ctx.queue(), &value, &value, sizeof value); }), ErrorKind::device);
  EXPECT_EQ(kind_of([&] { Context none({Device::cuda, CudaBackend::emulated, 1}, 1); }), ErrorKind::device);
  try {
    cuda::copy_to_device(ctx.queue(), &value, &value, sizeof value);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "CUDA: invalid argument (cudaMemcpy: the direction does not fit the pointers) (copy to the device)");
  }
  ctx.synchronize();  // nothing of it stays
}

TEST(CudaBackend, OneBackendAProcess) {
  Context ctx(kEmulated, 1);
  EXPECT_EQ(kind_of([] { open_cuda_backend(CudaBackend::device); }), ErrorKind::device);
}

}  // namespace
}  // namespace keel
