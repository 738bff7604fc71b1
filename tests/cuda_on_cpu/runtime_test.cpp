// The runtime's functions: what they return, and how they refuse.

#include "test_support.h"

namespace cuda_on_cpu {
namespace {

using RuntimeTest = EmulationTest;

__global__ void nothing() {}
__global__ void store(float* to, float value) {
  to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

std::string text_of(cudaError_t error) {
  return cudaGetErrorString(error);
}

TEST_F(RuntimeTest, AttributesAgreeWithProperties) {
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  const std::pair<cudaDeviceAttr, size_t> pairs[] = {
      {cudaDevAttrMaxThreadsPerBlock, properties.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, properties.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, properties.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, properties.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, properties.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, properties.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, properties.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, properties.sharedMemPerBlock},
      {cudaDevAttrWarpSize, properties.warpSize},
      {cudaDevAttrMaxRegistersPerBlock, properties.regsPerBlock},
      {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
      {cudaDevAttrL2CacheSize, properties.l2CacheSize},
      {cudaDevAttrMaxThreadsPerMultiProcessor, properties.maxThreadsPerMultiProcessor},
      {cudaDevAttrUnifiedAddressing, properties.unifiedAddressing},
      {cudaDevAttrComputeCapabilityMajor, properties.major},
      {cudaDevAttrComputeCapabilityMinor, properties.minor},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, properties.sharedMemPerMultiprocessor},
      {cudaDevAttrManagedMemory, properties.managedMemory},
      {cudaDevAttrConcurrentManagedAccess, properties.concurrentManagedAccess},
      {cudaDevAttrCooperativeLaunch, properties.cooperativeLaunch},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, properties.sharedMemPerBlockOptin},
      {cudaDevAttrMaxBlocksPerMultiprocessor, properties.maxBlocksPerMultiProcessor},
      {cudaDevAttrReservedSharedMemoryPerBlock, properties.reservedSharedMemPerBlock},
      {cudaDevAttrMemoryPoolsSupported, properties.memoryPoolsSupported},
      {cudaDevAttrClusterLaunch, properties.clusterLaunch},
  };
  for (const auto& [attribute, wanted] : pairs) {
    int value = -1;
    EXPECT_EQ(cudaDeviceGetAttribute(&value, attribute, 0), cudaSuccess);
    EXPECT_EQ(static_cast<size_t>(value), wanted) << attribute;
  }
  EXPECT_EQ(properties.sharedMemPerBlockOptin + properties.reservedSharedMemPerBlock,
            properties.sharedMemPerMultiprocessor);
}

TEST_F(RuntimeTest, OneDevice) {
  int count = 0, device = -1, value = 0, version = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(999), 0), cudaErrorInvalidValue);
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
}

TEST_F(RuntimeTest, ErrorsHaveNamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_EQ(text_of(cudaErrorIllegalAddress), "an illegal memory access was encountered");
  EXPECT_EQ(text_of(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(RuntimeTest, LastErrorIsHeldUntilAsked) {
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// ---- memory

TEST_F(RuntimeTest, MemoryStartsAsNan) {
  for (const bool managed : {false, true}) {
    float* memory = nullptr;
    ASSERT_EQ(managed ? cudaMallocManaged(&memory, 100) : cudaMalloc(&memory, 100), cudaSuccess);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0U);
    std::vector<unsigned char> bytes(100);
    ASSERT_EQ(cudaMemcpy(bytes.data(), memory, 100, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(bytes, std::vector<unsigned char>(100, 0xff));
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
}

TEST_F(RuntimeTest, MemoryIsLimited) {
  options.memory_bytes = 1 << 20;
  void *first = nullptr, *second = nullptr;
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMalloc(&first, 600 << 10), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, size_t{1} << 20);
  EXPECT_EQ(free, total - (600 << 10));
  EXPECT_EQ(cudaMalloc(&second, 600 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(text_of(cudaErrorMemoryAllocation),
            "out of memory (cudaMalloc: 614400 bytes, of which the device has 434176 free)");
  EXPECT_EQ(cudaMalloc(&second, ~size_t{0}), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 600 << 10), cudaSuccess);
}

TEST_F(RuntimeTest, ManyAllocationsComeAndGo) {
  options.memory_bytes = 4 << 20;
  for (int i = 0; i < 2000; ++i) {  // more than there are addresses
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess) << i;
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
  }
}

TEST_F(RuntimeTest, NothingOfNoBytes) {
  void* memory = &memory;
  EXPECT_EQ(cudaMalloc(&memory, 0), cudaSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocManaged(&memory, 0), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, MemoryIsFreedOnceAndByItsOwnFunction) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  int local = 0;
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(static_cast<char*>(device) + 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&local), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(RuntimeTest, PointersTellWhatTheyAre) {
  void *device = nullptr, *managed = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 64), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault), cudaSuccess);
  std::vector<char> pageable(64), registered(64);
  ASSERT_EQ(cudaHostRegister(registered.data(), 64, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(registered.data() + 32, 64, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  const std::pair<void*, cudaMemoryType> pairs[] = {{device, cudaMemoryTypeDevice},
                                                    {static_cast<char*>(device) + 63, cudaMemoryTypeDevice},
                                                    {static_cast<char*>(device) + 64, cudaMemoryTypeUnregistered},
                                                    {managed, cudaMemoryTypeManaged},
                                                    {pinned, cudaMemoryTypeHost},
                                                    {registered.data(), cudaMemoryTypeHost},
                                                    {pageable.data(), cudaMemoryTypeUnregistered}};
  for (const auto& [pointer, type] : pairs) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer), cudaSuccess);
    EXPECT_EQ(attributes.type, type);
  }
  EXPECT_EQ(cudaHostUnregister(registered.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(registered.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(RuntimeTest, CopiesGoWhereTheySay) {
  DeviceArray<int> a({1, 2, 3, 4}), b({0, 0, 0, 0});
  int* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 16), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(b.data(), a.data() + 1, 12, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(b.host(), (std::vector{2, 3, 4, 0}));
  EXPECT_EQ(cudaMemcpy(managed, b.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(managed[2], 4);
  EXPECT_EQ(cudaMemcpy(b.data(), managed, 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(b.data(), 0, 8), cudaSuccess);
  EXPECT_EQ(b.host(), (std::vector{0, 0, 4, 0}));
  std::vector<int> here(4);
  EXPECT_EQ(cudaMemcpy(here.data(), managed, 16, cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(here, (std::vector{2, 3, 4, 0}));
}

TEST_F(RuntimeTest, CopiesAreChecked) {
  DeviceArray<int> a(4);
  std::vector<int> here(64);
  EXPECT_EQ(cudaMemcpy(a.data(), here.data(), 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(here.data(), a.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(a.data(), here.data(), 20, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(here.data(), a.data() + 2, 12, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(a.data(), nullptr, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(a.data(), here.data(), 4, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(a.data(), nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(a.data(), 0, 17), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(here.data(), 0, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(a.data(), here.data(), 4, cudaMemcpyHostToDevice, reinterpret_cast<cudaStream_t>(&a)),
            cudaErrorInvalidResourceHandle);
}

// ---- launches

TEST_F(RuntimeTest, LaunchesHaveLimits) {
  const std::pair<Launch, cudaError_t> cases[] = {
      {{1, 1024}, cudaSuccess},
      {{1, 1025}, cudaErrorInvalidConfiguration},
      {{1, {32, 32, 1}}, cudaSuccess},
      {{1, {32, 32, 2}}, cudaErrorInvalidConfiguration},
      {{1, {1, 1, 64}}, cudaSuccess},
      {{1, {1, 1, 65}}, cudaErrorInvalidConfiguration},
      {{1, 0}, cudaErrorInvalidConfiguration},
      {{0, 1}, cudaErrorInvalidConfiguration},
      {{{1, 65535, 1}, 1}, cudaSuccess},
      {{{1, 65536, 1}, 1}, cudaErrorInvalidConfiguration},
      {{{1, 1, 65536}, 1}, cudaErrorInvalidConfiguration},
      {{{0x80000000U, 1, 1}, 1}, cudaErrorInvalidConfiguration},
      {{1, 1, 48 * 1024}, cudaSuccess},
      {{1, 1, 48 * 1024 + 1}, cudaErrorInvalidValue},
      {{1, 1, 0, reinterpret_cast<cudaStream_t>(8)}, cudaErrorInvalidResourceHandle},
  };
  for (const auto& [launch, wanted] : cases) {
    EXPECT_EQ(launch(nothing), wanted) << launch.grid.x << " " << launch.block.x << " " << launch.shared_bytes;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << "a refused launch does no harm";
  }
  EXPECT_EQ((Launch{1, 1}(static_cast<void (*)()>(nullptr))), cudaErrorInvalidDeviceFunction);
}

TEST_F(RuntimeTest, MoreSharedMemoryHasToBeAskedFor) {
  const Launch big{1, 32, 227 * 1024};
  EXPECT_EQ(big(nothing), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024), cudaSuccess);
  EXPECT_EQ(big(nothing), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributePreferredSharedMemoryCarveout, 100), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributePreferredSharedMemoryCarveout, 101), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, static_cast<cudaFuncAttribute>(10), 1), cudaErrorNotSupported);
}

TEST_F(RuntimeTest, UnknownAttributesOfALaunchAreRefused) {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = cudaLaunchAttributeIgnore;
  EXPECT_EQ(cudaLaunchKernelEx(&config, nothing), cudaSuccess);
  attribute.id = cudaLaunchAttributeCooperative;
  EXPECT_EQ(cudaLaunchKernelEx(&config, nothing), cudaErrorNotSupported);
}

TEST_F(RuntimeTest, KernelsTakePointersThatTheDeviceKnows) {
  float *device = nullptr, *managed = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 4), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 4), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 4), cudaSuccess);
  for (float* pointer : {device, managed, pinned}) {
    EXPECT_EQ((Launch{1, 1}(store, pointer, 5.0F)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_EQ(*managed, 5);
  EXPECT_EQ(*pinned, 5);
  ASSERT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ((Launch{1, 1}(store, device, 5.0F)), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST_F(RuntimeTest, ABrokenDeviceStaysBroken) {
  float local = 0;
  EXPECT_EQ((Launch{1, 1}(store, &local, 5.0F)), cudaSuccess);
  EXPECT_EQ(local, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(text_of(cudaErrorIllegalAddress),
            "an illegal memory access was encountered (argument 0 of a kernel points to no memory of the device, or to "
            "freed memory)");
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress) << "of a device, not of a call";
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamCreate(&stream), cudaErrorIllegalAddress);
  EXPECT_EQ((Launch{1, 1}(nothing)), cudaErrorIllegalAddress);
  cuda_on_cpu_reset();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
}

TEST_F(RuntimeTest, OccupancyByThreadsAndSharedMemory) {
  int blocks = 0;
  const std::tuple<int, size_t, int> cases[] = {{1024, 0, 2},         {33, 0, 32},          {256, 0, 8},
                                                {128, 100 * 1024, 2}, {128, 227 * 1024, 1}, {1025, 0, 0},
                                                {32, 228 * 1024, 0}};
  for (const auto& [threads, bytes, wanted] : cases) {
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, threads, bytes), cudaSuccess);
    EXPECT_EQ(blocks, wanted) << threads << " " << bytes;
  }
}

// ---- who touches what

using MemoryDeathTest = EmulationTest;

TEST_F(MemoryDeathTest, FreedMemoryIsGone) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  ASSERT_EQ(cudaMemset(memory, 0, 4), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_DEATH(*const_cast<volatile float*>(memory) = 1, "");
}

TEST_F(MemoryDeathTest, GuardKeepsTheHostOut) {
  options.guard = true;
  float *device = nullptr, *managed = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 4), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 4), cudaSuccess);
  for (float* memory : {device, managed}) EXPECT_EQ((Launch{1, 1}(store, memory, 5.0F)), cudaSuccess);
  float copy = 0;
  EXPECT_EQ(cudaMemcpy(&copy, device, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(copy, 5);
  EXPECT_EQ(*managed, 5);
  EXPECT_DEATH(*const_cast<volatile float*>(device) = 1, "");
}

}  // namespace
}  // namespace cuda_on_cpu
