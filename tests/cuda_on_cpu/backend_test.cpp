// The emulated backend as programs use it: opened late, through kernels/common.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend_test_support.h"
#include "keel/base/error.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/memory/device_reader.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

using testing::kEmulated;
using testing::kind_of;
using testing::LazyStreams;

TEST(CudaBackend, IsOpenedByAContext) {
  ASSERT_TRUE(has_cuda_backend(CudaBackend::emulated));
  Context ctx(kEmulated, 1);
  EXPECT_EQ(ctx.device(), Device::cuda);
  EXPECT_EQ(cuda::device_count(), 1);
  const CudaDeviceInfo info = cuda::device_info(ctx.queue());
  EXPECT_STREQ(info.name, "CUDA on CPU (emulated)");
  EXPECT_EQ(info.compute_capability, 90);
  EXPECT_EQ(info.shared_bytes, 227 * 1024);
  EXPECT_EQ(info.memory_bytes, static_cast<int64_t>(testing::emulation_options().memory_bytes));
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

/// Two halves of what is on the device, through one place in pinned memory.
std::vector<float> sent_through_one_place(Context& ctx, bool waits) {
  PinnedMemory<float> staged(ctx, 2);
  Mark sent(ctx);
  auto* memory = static_cast<float*>(cuda::allocate(ctx.queue(), 4 * sizeof(float)));
  for (int half = 0; half < 2; ++half) {
    if (waits) sent.wait();
    for (int i = 0; i < 2; ++i) staged.first(2)(i) = static_cast<float>(2 * half + i);
    enqueue_copy_to_device(ctx, staged, View<float, 1>(memory + 2 * half, {2}));
    sent.set();
  }
  std::vector<float> received(4);
  copy_to_host(ctx, View<const float, 1>(memory, {4}), HostView<float, 1>(received.data(), {4}));
  ctx.synchronize();
  cuda::release(ctx.queue(), memory);
  return received;
}

TEST(CudaBackend, PinnedMemoryIsLeftAloneUntilItsMark) {
  Context ctx(kEmulated, 1);
  const LazyStreams lazy;
  EXPECT_EQ(sent_through_one_place(ctx, true), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(sent_through_one_place(ctx, false), (std::vector<float>{2, 3, 2, 3})) << "a planted bug: reused too early";
}

TEST(CudaBackend, WhatIsFetchedIsThereAtItsMark) {
  Context ctx(kEmulated, 1);
  const LazyStreams lazy;
  const PinnedMemory<float> fetched(ctx, 2);
  Mark done(ctx);
  done.wait();
  auto* memory = static_cast<float*>(cuda::allocate(ctx.queue(), 2 * sizeof(float)));
  const std::vector<float> values{3, 4};
  copy_to_device(ctx, HostView<const float, 1>(values.data(), {2}), View<float, 1>(memory, {2}));
  enqueue_copy_to_host(ctx, View<const float, 1>(memory, {2}), fetched);
  done.set();
  cuda::zero(ctx.queue(), memory, 2 * sizeof(float));
  EXPECT_EQ(fetched.first(2)(0), 0) << "a planted bug: read too early";
  done.wait();
  EXPECT_EQ(fetched.first(2)(0), 3);
  EXPECT_EQ(fetched.first(2)(1), 4);
  EXPECT_EQ(kind_of([&] { (void)fetched.first(3); }), ErrorKind::shape);
  cuda::release(ctx.queue(), memory);
}

TEST(CudaBackend, PartsAreOnTheirWayWhileOthersAreRead) {
  Context ctx(kEmulated, 1);
  const LazyStreams lazy;
  DeviceReader reader(ctx, 2);
  auto* memory = static_cast<float*>(cuda::allocate(ctx.queue(), 6 * sizeof(float)));
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  const auto part = [&](int64_t i) { return View<const float, 1>(memory + 2 * i, {2}); };
  const auto read = [&](int64_t i) {
    const HostView<const float, 1> found = reader.read(part(i));
    return std::vector<float>{found(0), found(1)};
  };
  copy_to_device(ctx, HostView<const float, 1>(values.data(), {6}), View<float, 1>(memory, {6}));
  reader.request(part(0));
  reader.request(part(1));
  EXPECT_EQ(read(0), (std::vector<float>{0, 1}));
  reader.request(part(2));
  EXPECT_EQ(read(1), (std::vector<float>{2, 3}));
  EXPECT_EQ(read(2), (std::vector<float>{4, 5}));
  EXPECT_EQ(read(2), (std::vector<float>{4, 5})) << "not requested";
  reader.request(part(0));
  values = {6, 7, 8, 9, 10, 11};
  copy_to_device(ctx, HostView<const float, 1>(values.data(), {6}), View<float, 1>(memory, {6}));
  EXPECT_EQ(read(0), (std::vector<float>{0, 1})) << "as it was when it was requested";
  reader.request(part(2));
  values[4] = 20;
  copy_to_device(ctx, HostView<const float, 1>(values.data(), {6}), View<float, 1>(memory, {6}));
  reader.request(part(2));
  EXPECT_EQ(read(2), (std::vector<float>{20, 11})) << "when it was requested last";
  reader.request(part(1));
  reader.forget();
  EXPECT_EQ(read(1), (std::vector<float>{8, 9}));
  EXPECT_EQ(kind_of([&] { reader.request({memory, {3}}); }), ErrorKind::shape);
  cuda::release(ctx.queue(), memory);
}

TEST(CudaBackend, CopiesForOperationsMayBeMadeAgainAtOnce) {
  Context ctx(kEmulated, 1);
  const LazyStreams lazy;
  DeviceCopy<float> terms(ctx), sums(ctx);
  std::vector<float> values(3), received(3);
  const HostView<float, 1> to(received.data(), {3});
  const View<float, 1> sum = sums.in_place_of(to);
  zero(ctx, sum);
  for (const float value : {1.0F, 10.0F, 100.0F}) {
    std::ranges::fill(values, value);
    const View<const float, 1> term = terms.of(HostView<const float, 1>(values.data(), {3}));
    add_bias(ctx, term, View<float, 2>(sum.data(), {1, 3}));
  }
  std::ranges::fill(values, 0);
  sums.fetch(to);
  EXPECT_EQ(received, (std::vector<float>{0, 0, 0})) << "on its way";
  ctx.synchronize();
  sums.receive(to);
  EXPECT_EQ(received, (std::vector<float>{111, 111, 111}));
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
