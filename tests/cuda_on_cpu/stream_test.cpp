// Streams, events and host functions, eager and lazy.

#include "test_support.h"

namespace cuda_on_cpu {
namespace {

__global__ void store(float* to, float value) {
  *to = value;
}
__global__ void add(float* to, const float* from) {
  *to += *from;
}

class StreamTest : public EmulationTest, public testing::WithParamInterface<Streams> {
 protected:
  StreamTest() {
    options.streams = GetParam();
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaMalloc(&x, 4);
    cudaMalloc(&y, 4);
    cudaMallocHost(&pinned, 4);
    *pinned = 0;
  }
  bool lazy() const { return GetParam() == Streams::lazy; }
  /// In one of the streams, without waiting.
  void fetch(const float* from, cudaStream_t stream) {
    ASSERT_EQ(cudaMemcpyAsync(pinned, from, 4, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  }
  cudaStream_t a = nullptr, b = nullptr;
  float *x = nullptr, *y = nullptr, *pinned = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, StreamTest, testing::Values(Streams::eager, Streams::lazy),
                         [](const auto& info) { return info.param == Streams::lazy ? "lazy" : "eager"; });

TEST_P(StreamTest, RunsInOrderWhenWaitedFor) {
  Launch{1, 1, 0, a}(store, x, 3.0F);
  Launch{1, 1, 0, a}(add, x, x);
  fetch(x, a);
  EXPECT_EQ(*pinned, lazy() ? 0 : 6);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(*pinned, 6);
}

TEST_P(StreamTest, DeviceSynchronizeWaitsForAll) {
  Launch{1, 1, 0, a}(store, x, 3.0F);
  fetch(x, a);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*pinned, 3);
}

TEST_P(StreamTest, AnEventOrdersStreams) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  Launch{1, 1, 0, a}(store, x, 3.0F);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  Launch{1, 1, 0, a}(store, x, 4.0F);  // after the event: not waited for
  ASSERT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);
  fetch(x, b);
  ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(*pinned, lazy() ? 3 : 4);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_P(StreamTest, WithoutAnEventStreamsDoNotWait) {
  Launch{1, 1, 0, a}(store, x, 3.0F);
  fetch(x, b);
  ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(*pinned == 3, !lazy());
  if (lazy()) {
    EXPECT_NE(*pinned, *pinned) << "NaN: nothing was stored yet";
  }
}

// A wait refers to what was recorded when it was asked for.
TEST_P(StreamTest, AnEventMayBeRecordedAgain) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "recorded nowhere";
  EXPECT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);
  Launch{1, 1, 0, a}(store, x, 1.0F);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);
  Launch{1, 1, 0, a}(store, x, 2.0F);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  fetch(x, b);
  ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(*pinned, lazy() ? 1 : 2);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  fetch(x, b);
  ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(*pinned, 2);
}

TEST_P(StreamTest, AskingComesToAnEnd) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  Launch{1, 1, 0, a}(store, x, 1.0F);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), lazy() ? cudaErrorNotReady : cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "not ready is no error";
  int asked = 0;
  while (cudaEventQuery(event) == cudaErrorNotReady) ASSERT_LT(++asked, 10);
  fetch(x, a);
  EXPECT_EQ(cudaStreamQuery(a), lazy() ? cudaErrorNotReady : cudaSuccess);
  while (cudaStreamQuery(a) == cudaErrorNotReady) ASSERT_LT(++asked, 10);
  EXPECT_EQ(*pinned, 1);
}

TEST_P(StreamTest, EventsTakeTime) {
  cudaEvent_t start = nullptr, end = nullptr, untimed = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(start, a), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, a), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, a), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  if (lazy()) {
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  }
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
}

// The default stream and ordinary ones wait for each other; non-blocking ones do not take part.
TEST_P(StreamTest, TheDefaultStreamWaits) {
  cudaStream_t ordinary = nullptr;
  ASSERT_EQ(cudaStreamCreate(&ordinary), cudaSuccess);
  Launch{1, 1, 0, ordinary}(store, x, 1.0F);
  Launch{1, 1}(add, x, x);
  Launch{1, 1, 0, ordinary}(add, x, x);
  fetch(x, ordinary);
  ASSERT_EQ(cudaStreamSynchronize(ordinary), cudaSuccess);
  EXPECT_EQ(*pinned, 4);

  Launch{1, 1, 0, a}(store, y, 1.0F);
  float copy = 0;
  ASSERT_EQ(cudaMemcpy(&copy, y, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(copy == 1, !lazy());
}

// ---- what the host may do with its memory

TEST_P(StreamTest, PageableMemoryIsReadAtTheCall) {
  float value = 1;
  ASSERT_EQ(cudaMemcpyAsync(x, &value, 4, cudaMemcpyHostToDevice, a), cudaSuccess);
  value = 2;
  fetch(x, a);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(*pinned, 1);
}

TEST_P(StreamTest, PageableMemoryIsWrittenAtTheCall) {
  float value = 0;
  Launch{1, 1, 0, a}(store, x, 3.0F);
  ASSERT_EQ(cudaMemcpyAsync(&value, x, 4, cudaMemcpyDeviceToHost, a), cudaSuccess);
  EXPECT_EQ(value, 3);
}

TEST_P(StreamTest, PinnedMemoryIsReadInItsTurn) {
  *pinned = 1;
  ASSERT_EQ(cudaMemcpyAsync(x, pinned, 4, cudaMemcpyHostToDevice, a), cudaSuccess);
  *pinned = 2;  // too early
  float value = 0;
  ASSERT_EQ(cudaMemcpyAsync(&value, x, 4, cudaMemcpyDeviceToHost, a), cudaSuccess);
  EXPECT_EQ(value, lazy() ? 2 : 1);
}

TEST_P(StreamTest, RegisteredMemoryIsPinned) {
  float value = 1, back = 0;
  ASSERT_EQ(cudaHostRegister(&value, 4, cudaHostRegisterDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(x, &value, 4, cudaMemcpyHostToDevice, a), cudaSuccess);
  value = 2;
  ASSERT_EQ(cudaMemcpyAsync(&back, x, 4, cudaMemcpyDeviceToHost, a), cudaSuccess);
  EXPECT_EQ(back, lazy() ? 2 : 1);
  EXPECT_EQ(cudaHostUnregister(&value), cudaSuccess);
}

// Arguments are copied at the launch.
TEST_P(StreamTest, ArgumentsAreKept) {
  float value = 5;
  Launch{1, 1, 0, a}(store, x, value);
  value = 6;
  fetch(x, a);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(*pinned, 5);
}

TEST_P(StreamTest, MemsetRunsInItsTurn) {
  Launch{1, 1, 0, a}(store, x, 5.0F);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 4, a), cudaSuccess);
  *pinned = 1;
  fetch(x, a);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(*pinned, 0);
}

TEST_P(StreamTest, HostFunctionsRunInTheirTurnWithoutCuda) {
  struct Seen {
    float* pinned;
    float value;
    cudaError_t inside;
  } seen{pinned, 0, cudaSuccess};
  Launch{1, 1, 0, a}(store, x, 7.0F);
  fetch(x, a);
  ASSERT_EQ(cudaLaunchHostFunc(
                a,
                [](void* argument) {
                  auto& s = *static_cast<Seen*>(argument);
                  s.value = *s.pinned;
                  s.inside = cudaSetDevice(0);
                },
                &seen),
            cudaSuccess);
  EXPECT_EQ(seen.value, lazy() ? 0 : 7);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(seen.value, 7);
  EXPECT_EQ(seen.inside, cudaErrorNotPermitted);
  EXPECT_EQ(cudaLaunchHostFunc(a, nullptr, nullptr), cudaErrorInvalidValue);
}

// ---- ends

TEST_P(StreamTest, FreeWaitsForTheDevice) {
  Launch{1, 1, 0, a}(store, x, 3.0F);
  fetch(x, a);
  ASSERT_EQ(cudaFree(y), cudaSuccess);
  EXPECT_EQ(*pinned, 3);
}

TEST_P(StreamTest, ADestroyedStreamFinishesItsWork) {
  Launch{1, 1, 0, a}(store, x, 3.0F);
  fetch(x, a);
  ASSERT_EQ(cudaStreamDestroy(a), cudaSuccess);
  EXPECT_EQ(*pinned, lazy() ? 0 : 3);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(a), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*pinned, 3);
}

TEST_P(StreamTest, HandlesAreChecked) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(a, event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&event, 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

// An error of a kernel is met when its stream is waited for, and what was to come after it does not run.
TEST_P(StreamTest, AFailureShowsAtTheNextSynchronisation) {
  float local = 0;
  EXPECT_EQ((Launch{1, 1, 0, a}(store, &local, 1.0F)), cudaSuccess);
  if (lazy()) {
    EXPECT_EQ((Launch{1, 1, 0, a}(store, x, 1.0F)), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
}

}  // namespace
}  // namespace cuda_on_cpu
