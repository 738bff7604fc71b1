// Capture of streams and graphs, eager and lazy.

#include <thread>

#include "test_support.h"

namespace cuda_on_cpu {
namespace {

__global__ void store(float* to, float value) {
  *to = value;
}
__global__ void add(float* to, const float* from) {
  *to += *from;
}

class GraphTest : public EmulationTest, public testing::WithParamInterface<Streams> {
 protected:
  GraphTest() {
    options.streams = GetParam();
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&x, 4);
    cudaMalloc(&y, 4);
    cudaMallocHost(&pinned, 4);
    *pinned = 0;
    cudaMemset(x, 0, 4);
    cudaMemset(y, 0, 4);
    cudaDeviceSynchronize();
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus found{};
    EXPECT_EQ(cudaStreamIsCapturing(stream, &found), cudaSuccess);
    return found;
  }
  float value_of(const float* at) {
    EXPECT_EQ(cudaMemcpyAsync(pinned, at, 4, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return *pinned;
  }
  /// The call is refused, and the capture fails by it.
  template <class Call>
  void expect_spoilt(Call call) {
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ((Launch{1, 1, 0, stream}(store, x, 9.0F)), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  }
  cudaStream_t stream = nullptr;
  float *x = nullptr, *y = nullptr, *pinned = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, GraphTest, testing::Values(Streams::eager, Streams::lazy),
                         [](const auto& info) { return info.param == Streams::lazy ? "lazy" : "eager"; });

TEST_P(GraphTest, WhatIsCapturedRunsWhenItIsLaunched) {
  Launch{1, 1, 0, stream}(store, x, 5.0F);
  begin();
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  float one = 1;
  EXPECT_EQ((Launch{1, 1, 0, stream}(store, y, one)), cudaSuccess);
  one = 7;  // arguments are kept
  EXPECT_EQ((Launch{1, 1, 0, stream}(add, x, y)), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(y, 0, 4, stream), cudaSuccess);
  cudaGraphExec_t executable = end();
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  EXPECT_EQ(value_of(x), 5) << "nothing ran";
  for (int times = 1; times <= 3; ++times) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(value_of(x), static_cast<float>(5 + times));
  }
  EXPECT_EQ(value_of(y), 0);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(value_of(x), 9) << "what was launched still runs";
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
}

TEST_P(GraphTest, PinnedMemoryIsReadWhenTheGraphRuns) {
  begin();
  *pinned = 1;
  EXPECT_EQ(cudaMemcpyAsync(x, pinned, 4, cudaMemcpyHostToDevice, stream), cudaSuccess);
  cudaGraphExec_t executable = end();
  *pinned = 2;
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(value_of(x), 2);
}

TEST_P(GraphTest, NodesAreCounted) {
  begin();
  Launch{1, 1, 0, stream}(store, x, 5.0F);
  EXPECT_EQ(cudaMemsetAsync(y, 0, 4, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaErrorInvalidValue);
}

TEST_P(GraphTest, OtherStreamsGoOn) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  begin();
  EXPECT_EQ((Launch{1, 1, 0, other}(store, x, 3.0F)), cudaSuccess);
  EXPECT_EQ((Launch{1, 1}(store, y, 4.0F)), cudaSuccess) << "the default stream does not wait for this one";
  (void)end();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(value_of(x), 3);
  EXPECT_EQ(value_of(y), 4);
}

TEST_P(GraphTest, WhatMayNotBeCapturedSpoilsTheCapture) {
  void* memory = nullptr;
  float here = 1;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  expect_spoilt([&] { return cudaStreamSynchronize(stream); });
  expect_spoilt([&] { return cudaStreamQuery(stream); });
  expect_spoilt([&] { return cudaDeviceSynchronize(); });
  expect_spoilt([&] { return cudaEventSynchronize(event); });
  expect_spoilt([&] { return cudaEventQuery(event); });
  expect_spoilt([&] { return cudaMalloc(&memory, 4); });
  expect_spoilt([&] { return cudaMallocManaged(&memory, 4); });
  expect_spoilt([&] { return cudaMallocHost(&memory, 4); });
  expect_spoilt([&] { return cudaFree(y); });
  expect_spoilt([&] { return cudaFreeHost(pinned); });
  expect_spoilt([&] { return cudaMemcpy(x, pinned, 4, cudaMemcpyHostToDevice); });
  expect_spoilt([&] { return cudaMemset(x, 0, 4); });
  expect_spoilt([&] { return cudaMemcpyAsync(x, &here, 4, cudaMemcpyHostToDevice, stream); });
  expect_spoilt([&] { return cudaMemcpyAsync(&here, x, 4, cudaMemcpyDeviceToHost, stream); });
  expect_spoilt([&] { return cudaStreamDestroy(stream); });
  EXPECT_EQ(here, 1);
  EXPECT_EQ(value_of(x), 0) << "and the stream is as it was";
}

TEST_P(GraphTest, EventsOfACaptureAreNotEmulated) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  begin();
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event), cudaErrorNotSupported);
  (void)end();
}

TEST_P(GraphTest, TheDefaultStreamMayNotWaitForACapture) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ((Launch{1, 1}(store, x, 1.0F)), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_P(GraphTest, ThreadsAndModes) {
  cudaError_t allocated{}, ended{};
  void* memory = nullptr;
  cudaGraph_t graph = nullptr;
  const auto elsewhere = [](auto function) { std::thread(function).join(); };
  begin(cudaStreamCaptureModeThreadLocal);
  elsewhere([&] { allocated = cudaMalloc(&memory, 4); });
  EXPECT_EQ(allocated, cudaSuccess);
  (void)end();
  begin(cudaStreamCaptureModeGlobal);
  elsewhere([&] { allocated = cudaMalloc(&memory, 4); });
  EXPECT_EQ(allocated, cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  begin();
  elsewhere([&] { ended = cudaStreamEndCapture(stream, &graph); });
  EXPECT_EQ(ended, cudaErrorStreamCaptureWrongThread);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamBeginCapture(stream, static_cast<cudaStreamCaptureMode>(5)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  (void)end();
}

TEST_P(GraphTest, HandlesAreChecked) {
  cudaGraphExec_t executable = nullptr;
  auto* const none = reinterpret_cast<cudaGraph_t>(&executable);
  EXPECT_EQ(cudaGraphInstantiate(&executable, none), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(nullptr, none), cudaErrorInvalidValue);
  begin();
  cudaGraphExec_t empty = end();
  EXPECT_EQ(cudaGraphLaunch(empty, reinterpret_cast<cudaStream_t>(8)), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGraphLaunch(empty, stream), cudaSuccess);
  begin();
  EXPECT_EQ(cudaGraphLaunch(empty, stream), cudaErrorNotSupported);
  (void)end();
}

// Refused launches do no harm to a capture, and what fails when the graph runs breaks the device.
TEST_P(GraphTest, MistakesShowWhereTheyAre) {
  begin();
  EXPECT_EQ((Launch{1, 2000, 0, stream}(store, x, 1.0F)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  EXPECT_EQ((Launch{1, 1, 0, stream}(store, y, 1.0F)), cudaSuccess);
  cudaGraphExec_t executable = end();
  ASSERT_EQ(cudaFree(y), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress) << "memory that was freed since";
}

}  // namespace
}  // namespace cuda_on_cpu
