// main() of tests of operations. With KEEL_TEST_DEVICE they run on a GPU, real or emulated, unchanged: memory that the
// program allocates once they have begun, and the stack that they run on, is memory that host and device share.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/common/cuda_device.h"
#include "support/test_device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace {

/// Blocks of power-of-two sizes in pieces of shared memory, each with room behind it that is poisoned.
class SharedHeap {
 public:
  void use(keel::CudaQueue& queue) { queue_ = &queue; }
  /// Not by the thread that is taking a piece for it.
  bool is_in_use() const { return queue_ != nullptr && !is_growing; }
  bool has(const void* p) const {
    for (int i = 0; i < count_.load(std::memory_order_acquire); ++i) {
      if (p >= pieces_[i].begin && p < pieces_[i].end) return true;
    }
    return false;
  }

  void* take(size_t bytes) {
    const int size_class = class_of(bytes + kHeader + kGap);
    char* block = find(size_class);
    while (block == nullptr && grow(size_t{1} << size_class)) block = find(size_class);
    if (block == nullptr) return nullptr;
    ASAN_UNPOISON_MEMORY_REGION(block, kHeader);
    header(block).size_class = size_class;
    ASAN_POISON_MEMORY_REGION(block, kHeader);
    ASAN_UNPOISON_MEMORY_REGION(block + kHeader, bytes);
    return block + kHeader;
  }

  void give_back(void* p) {
    const std::lock_guard lock(mutex_);
    char* block = static_cast<char*>(p) - kHeader;
    ASAN_UNPOISON_MEMORY_REGION(block, kHeader);
    const int size_class = header(block).size_class;
    header(block).next = free_[size_class];
    free_[size_class] = block;
    ASAN_POISON_MEMORY_REGION(block, size_t{1} << size_class);
  }

 private:
  static constexpr size_t kHeader = 64, kGap = 64;  // memory is aligned to 64
  struct Header {
    char* next;
    int size_class;
  };
  static Header& header(char* block) { return *reinterpret_cast<Header*>(block); }
  static int class_of(size_t bytes) {
    int size_class = 7;
    while ((size_t{1} << size_class) < bytes) ++size_class;
    return size_class;
  }

  /// A block that was given back, or of the last piece; null if that has no room.
  char* find(int size_class) {
    const std::lock_guard lock(mutex_);
    char* block = free_[size_class];
    if (block != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(block, kHeader);
      free_[size_class] = header(block).next;
      return block;
    }
    const size_t whole = size_t{1} << size_class;
    if (static_cast<size_t>(end_ - next_) < whole) return nullptr;
    return std::exchange(next_, next_ + whole);
  }

  /// Takes another piece, in which so many bytes find room; what is left of the last one is lost. A device fills its memory
  /// when it is taken, so that no more is taken than tests use. The device is asked outside of the lock: what it does there
  /// may take memory in other threads.
  bool grow(size_t bytes) {
    constexpr size_t kPiece = size_t{64} << 20;
    bytes = std::max(bytes, kPiece);
    char* piece = nullptr;
    is_growing = true;
    try {
      piece = static_cast<char*>(keel::cuda::allocate_shared(*queue_, static_cast<int64_t>(bytes)));
    } catch (const keel::Error&) {
    }
    is_growing = false;
    const std::lock_guard lock(mutex_);
    const int count = count_.load(std::memory_order_relaxed);
    if (piece == nullptr || count == kMostPieces) return false;
    next_ = piece;
    end_ = piece + bytes;
    pieces_[count] = {next_, end_};
    ASAN_POISON_MEMORY_REGION(next_, bytes);
    count_.store(count + 1, std::memory_order_release);
    return true;
  }

  struct Piece {
    char *begin, *end;
  };
  static constexpr int kMostPieces = 256;
  static thread_local bool is_growing;

  keel::CudaQueue* queue_ = nullptr;
  Piece pieces_[kMostPieces] = {};
  std::atomic<int> count_ = 0;
  char *next_ = nullptr, *end_ = nullptr;
  char* free_[64] = {};
  std::mutex mutex_;
};
thread_local bool SharedHeap::is_growing = false;

SharedHeap shared_heap;

void* allocate(size_t bytes, size_t alignment) {
  if (shared_heap.is_in_use() && alignment <= 64) return shared_heap.take(bytes);
  return std::aligned_alloc(std::max<size_t>(alignment, 64), (bytes + 63) / 64 * 64 + 64);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* p = allocate(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void give_back(void* p) noexcept {
  if (shared_heap.has(p)) return shared_heap.give_back(p);
  std::free(p);
}

int exit_code_of_tests = 1;

void* run_tests(void*) {
  exit_code_of_tests = RUN_ALL_TESTS();
  return nullptr;
}

/// Runs the tests with shared memory for heap and stack.
int run_on(const keel::DeviceChoice& device) {
  constexpr size_t kStack = size_t{64} << 20;
  keel::Context ctx(device, 1);
  void* stack = keel::cuda::allocate_shared(ctx.queue(), kStack);
  shared_heap.use(ctx.queue());
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStack);
  pthread_t thread{};
  if (pthread_create(&thread, &attributes, run_tests, nullptr) != 0) {
    std::fprintf(stderr, "the thread of the tests cannot be started\n");
    return 1;
  }
  pthread_join(thread, nullptr);
  std::fflush(nullptr);
  std::_Exit(exit_code_of_tests);  // what lives in shared memory is not torn down after it
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate_or_throw(bytes, 16);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 16);
}
void operator delete(void* p) noexcept {
  give_back(p);
}
void operator delete(void* p, size_t) noexcept {
  give_back(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  give_back(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  give_back(p);
}

std::optional<keel::DeviceChoice> keel::testing::test_device() {
  const char* asked = std::getenv("KEEL_TEST_DEVICE");
  if (asked == nullptr || *asked == '\0' || std::string(asked) == "cpu") return {};
  const std::string name = asked;
  if (name == "cuda") return DeviceChoice{Device::cuda, CudaBackend::device};
  if (name == "cuda-emulated") return DeviceChoice{Device::cuda, CudaBackend::emulated};
  std::fprintf(stderr, "KEEL_TEST_DEVICE=%s: cpu, cuda or cuda-emulated\n", asked);
  std::exit(2);
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Launches wait for their kernels, so that tests may look at results at once.
  setenv("CUDA_LAUNCH_BLOCKING", "1", 0);
  setenv("KEEL_CUDA_SHARED_MEMORY", "1", 0);
  const auto device = keel::testing::test_device();
  if (!device) return RUN_ALL_TESTS();
  try {
    return run_on(*device);
  } catch (const keel::Error& error) {
    std::fprintf(stderr, "KEEL_TEST_DEVICE: %s\n", error.what());
    return keel::exit_code(error.kind());
  }
}
