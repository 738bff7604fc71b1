// planted_bugs NAME: runs kernels with one bug each and prints what comes of it, one line: "error: TEXT", "NaN" (a result
// that is not a number), or the results' hash. planted_bugs_test.cpp says which check of the emulation must notice.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keel/kernels/common/device.cuh"

using namespace keel;

namespace {

constexpr int kThreads = 64, kBlocks = 4, kCount = kThreads * kBlocks;

// ---- what threads of a block do

__global__ void missing_barrier(float* out) {
  KEEL_SHARED(float, s, [kThreads]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = s[(threadIdx.x + 33) % kThreads];
}
__global__ void reused_too_early(float* out) {
  KEEL_SHARED(float, s, [2]);
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x % kWarp == 0) s[threadIdx.x / kWarp] = static_cast<float>(i + threadIdx.x);
    __syncthreads();
    out[threadIdx.x] += s[0] + s[1];
  }
}
__global__ void uninitialised_shared(float* out) {
  KEEL_SHARED(float, s, [kThreads]);
  if (threadIdx.x != 7) s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void missing_async_wait(float* out) {
  KEEL_SHARED(float4, s, [kThreads]);
  const auto* in = reinterpret_cast<const float4*>(out);
  cp_async16(&s[threadIdx.x], in + threadIdx.x);
  cp_async_commit();
  __syncthreads();
  reinterpret_cast<float4*>(out)[threadIdx.x] = s[threadIdx.x];
}
__global__ void lost_update(float* out) { out[0] += 1; }
__global__ void divergent_barrier(float* out) {
  if (threadIdx.x < kWarp) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1;
    __syncthreads();
  }
}
__global__ void skipped_barrier(float* out) {
  if (threadIdx.x != 3) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void early_return(float* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void absent_lane(float* out) {
  if (threadIdx.x % kWarp < 16) out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0F, 1);
  __syncthreads();
}

// ---- what blocks do

__global__ void between_blocks(float* out) { out[blockIdx.x] = blockIdx.x == 0 ? 1 : out[blockIdx.x - 1] + 1; }
__global__ void lost_update_of_blocks(float* out) {
  if (threadIdx.x == 0) out[0] += 1;
}

// ---- where they reach

__global__ void static_overrun(float* out) {
  KEEL_SHARED(float, s, [kThreads]);
  float* p = s;
  p[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = p[threadIdx.x];
}
__global__ void dynamic_overrun(float* out) {
  auto* s = dynamic_shared<float>();
  s[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void device_overrun(float* out) { out[blockIdx.x * blockDim.x + threadIdx.x + 1] = 1; }
__global__ void misaligned(float* out) {
  reinterpret_cast<float4*>(out + 1)[threadIdx.x] = make_float4(1, 2, 3, 4);
}
struct Pointers {
  float* to;
};
__global__ void store_through(Pointers pointers, float value) { pointers.to[threadIdx.x] = value; }

// ---- what is right

__global__ void fine(float* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(threadIdx.x); }
/// Everything that the checks look at, done right.
__global__ void correct(float* out) {
  KEEL_SHARED(float4, s, [kThreads]);
  KEEL_SHARED(float, votes, [1]);
  auto* dynamic = dynamic_shared<float>();
  float* mine = out + blockIdx.x * kThreads;
  cp_async16(&s[threadIdx.x], out + 4 * (threadIdx.x % 16));
  cp_async_commit();
  if (threadIdx.x == 0) votes[0] = 0;
  dynamic[threadIdx.x] = static_cast<float>(threadIdx.x);
  cp_async_wait<0>();
  __syncthreads();
  float sum = block_sum(dynamic[(threadIdx.x + 1) % kThreads]) + s[kThreads - 1 - threadIdx.x].y;
  sum += __shfl_xor_sync(kAllLanes, sum, 3);
  if (threadIdx.x < 6) sum += __shfl_xor_sync(0x3fU, sum, 1);
  atomicAdd(votes, 1.0F);
  unsigned registers[4];
  ldmatrix_x4<true>(registers, &s[threadIdx.x % kWarp]);
  float d[4] = {sum, 0, 0, 0};
  mma_m16n8k16(d, registers, {registers[0], registers[1]});
  __syncthreads();
  if (blockIdx.x > 0) mine[threadIdx.x] = sum + d[0] + votes[0];  // block 0's part is read by all
}

// ---- runs

struct Bench {
  CudaQueue queue;
  float* out = nullptr;

  template <class... Arguments>
  void run(void (*kernel)(Arguments...), int blocks, int threads, size_t shared, std::type_identity_t<Arguments>... arguments) {
    launch(queue, kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, arguments...);
  }
  void run(void (*kernel)(float*), int blocks = 1, int threads = kThreads, size_t shared = 0) {
    run<float*>(kernel, blocks, threads, shared, out);
  }
};

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}

/// The result is fetched by another stream than the one that computes it.
void fetch_too_early(Bench& bench, bool with_event_of_before) {
  cudaStream_t computing = new_stream(), fetching = new_stream();
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  if (with_event_of_before) check(cudaEventRecord(event, computing), "record");
  bench.queue.stream = computing;
  bench.run(fine, kBlocks);
  if (with_event_of_before) check(cudaStreamWaitEvent(fetching, event), "wait");
  float* copy = nullptr;
  check(cudaMallocHost(&copy, sizeof(float) * kCount), "pinned memory");
  check(cudaMemcpyAsync(copy, bench.out, sizeof(float) * kCount, cudaMemcpyDeviceToHost, fetching), "fetch");
  check(cudaStreamSynchronize(fetching), "fetching");
  const std::vector<float> early(copy, copy + kCount);
  check(cudaDeviceSynchronize(), "computing");
  check(cudaMemcpy(bench.out, early.data(), sizeof(float) * kCount, cudaMemcpyHostToDevice), "back");
}

void reuse_pinned_too_early(Bench& bench) {
  cudaStream_t stream = new_stream();
  float* staging = nullptr;
  check(cudaMallocHost(&staging, sizeof(float) * kCount), "pinned memory");
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < kCount / 2; ++i) staging[i] = static_cast<float>(part);
    check(cudaMemcpyAsync(bench.out + part * kCount / 2, staging, sizeof(float) * kCount / 2, cudaMemcpyHostToDevice,
                          stream),
          "copy");
  }
  check(cudaStreamSynchronize(stream), "copies");
}

void use_freed_memory(Bench& bench) {
  float* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(float) * kThreads), "memory");
  check(cudaFree(memory), "free");
  bench.run(store_through, 1, kThreads, 0, Pointers{memory}, 1.0F);
}

void use_uninitialised_memory(Bench& bench) {
  float* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(float) * kCount), "memory");
  check(cudaMemcpy(bench.out, memory, sizeof(float) * kCount / 2, cudaMemcpyDeviceToDevice), "copy");
}

const std::map<std::string, std::function<void(Bench&)>> kCases = {
    {"fine", [](Bench& b) { b.run(fine, kBlocks); }},
    {"correct", [](Bench& b) { b.run(correct, kBlocks, kThreads, kThreads * sizeof(float)); }},
    {"missing_barrier", [](Bench& b) { b.run(missing_barrier); }},
    {"reused_too_early", [](Bench& b) { b.run(reused_too_early); }},
    {"uninitialised_shared", [](Bench& b) { b.run(uninitialised_shared); }},
    {"missing_async_wait", [](Bench& b) { b.run(missing_async_wait); }},
    {"lost_update", [](Bench& b) { b.run(lost_update); }},
    {"lost_update_of_blocks", [](Bench& b) { b.run(lost_update_of_blocks, kBlocks); }},
    {"divergent_barrier", [](Bench& b) { b.run(divergent_barrier); }},
    {"skipped_barrier", [](Bench& b) { b.run(skipped_barrier); }},
    {"early_return", [](Bench& b) { b.run(early_return); }},
    {"absent_lane", [](Bench& b) { b.run(absent_lane); }},
    {"between_blocks", [](Bench& b) { b.run(between_blocks, kBlocks, 1); }},
    {"static_overrun", [](Bench& b) { b.run(static_overrun); }},
    {"dynamic_overrun", [](Bench& b) { b.run(dynamic_overrun, 1, kThreads, kThreads * sizeof(float)); }},
    {"device_overrun", [](Bench& b) { b.run(device_overrun, kBlocks); }},
    {"misaligned", [](Bench& b) { b.run(misaligned, 1, 16); }},
    {"host_pointer",
     [](Bench& b) {
       std::vector<float> host(kThreads);
       b.run<float*>(fine, 1, kThreads, 0, host.data());
     }},
    {"too_many_threads", [](Bench& b) { b.run(fine, 1, 1056); }},
    {"too_much_dynamic_shared", [](Bench& b) { b.run(fine, 1, kThreads, 228 * 1024); }},
    {"host_reads_device",
     [](Bench& b) {
       b.run(fine, kBlocks);
       volatile float value = b.out[0];
       (void)value;
     }},
    {"missing_stream_wait", [](Bench& b) { fetch_too_early(b, false); }},
    {"event_recorded_too_early", [](Bench& b) { fetch_too_early(b, true); }},
    {"pinned_reused_too_early", reuse_pinned_too_early},
    {"freed_too_early", use_freed_memory},
    {"uninitialised_device", use_uninitialised_memory},
};

std::string outcome(const std::string& name) {
  Bench bench;
  std::vector<float> results(kCount);
  check(cudaMalloc(&bench.out, sizeof(float) * kCount), "memory");
  check(cudaMemset(bench.out, 0, sizeof(float) * kCount), "zero");
  check(cudaDeviceSynchronize(), "zero");
  kCases.at(name)(bench);
  check(cudaDeviceSynchronize(), "the kernel");
  check(cudaMemcpy(results.data(), bench.out, sizeof(float) * kCount, cudaMemcpyDeviceToHost), "results");
  uint64_t hash = 14695981039346656037U;
  bool nan = false;
  for (const float value : results) {
    nan = nan || value != value;
    hash = (hash ^ __float_as_uint(value)) * 1099511628211U;
  }
  return (nan ? "NaN " : "") + std::to_string(hash);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || kCases.count(argv[1]) == 0) return 2;
  try {
    std::printf("%s\n", outcome(argv[1]).c_str());
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
  return 0;
}
