#include "keel/kernels/machine_rate/machine_rate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/process.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/machine_rate/machine_rate_cpu.h"
#include "keel/kernels/machine_rate/machine_rate_cuda.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

/// work(thread, pass) by several threads, the caller being thread 0; they begin each pass together. Pass 0 is to warm
/// up.
class Passes {
 public:
  using Work = std::function<void(int thread, int pass)>;
  Passes(int threads, Work work) : threads_(threads), work_(std::move(work)), together_(threads) {}

  double fastest_seconds(double seconds) {
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads_; ++thread) others.emplace_back([this, thread] { follow(thread); });
    } catch (const std::system_error& refused) {
      is_over_ = true;
      for (int thread = static_cast<int>(others.size()); thread < threads_; ++thread) together_.arrive_and_drop();
      throw thread_error(threads_, refused);
    }
    double fastest = std::numeric_limits<double>::infinity();
    Stopwatch total;
    for (int pass = 0; pass <= kLeastPasses || total.seconds() < seconds; ++pass) {
      if (pass == 1) total = Stopwatch();
      const Stopwatch
          watch;  // before the others begin: with more threads than cores they may be done when this one runs
      together_.arrive_and_wait();
      run(0, pass);
      if (pass > 0) fastest = std::min(fastest, watch.seconds());
    }
    is_over_ = true;
    together_.arrive_and_wait();
    return fastest;
  }

 private:
  static constexpr int kLeastPasses = 3;

  void follow(int thread) {
    for (int pass = 0;; ++pass) {
      together_.arrive_and_wait();
      if (is_over_) return;
      run(thread, pass);
    }
  }
  void run(int thread, int pass) {
    work_(thread, pass);
    together_.arrive_and_wait();
  }

  int threads_;
  Work work_;
  std::barrier<> together_;
  bool is_over_ = false;  ///< set between passes: the barrier is what orders it
};

struct Free {
  void operator()(float* p) const noexcept { std::free(p); }
};
using Floats = std::unique_ptr<float[], Free>;

/// In huge pages where the system gives them: translating addresses is not what is measured.
Floats allocate(int64_t count) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t bytes = (count * int64_t{sizeof(float)} + kHugePage - 1) / kHugePage * kHugePage;
  Floats floats(static_cast<float*>(std::aligned_alloc(kHugePage, bytes)));
  if (floats == nullptr) throw Error(ErrorKind::memory, "no memory to measure how fast it is");
  (void)::madvise(floats.get(), bytes, MADV_HUGEPAGE);
  return floats;
}

int64_t largest_cache_bytes() {
  int64_t largest = 0;
#if defined(_SC_LEVEL4_CACHE_SIZE)
  for (const int level : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    largest = std::max<int64_t>(largest, ::sysconf(level));
  }
#endif
  return largest;
}

}  // namespace

double measure_bandwidth(Isa isa, int threads, int64_t bytes, double seconds) {
  constexpr int kArrays = 3;
  const int64_t n = std::max<int64_t>(threads, bytes / (kArrays * int64_t{sizeof(float)}));
  const Floats a = allocate(n), b = allocate(n), c = allocate(n);
  const double fastest =
      Passes(threads, [&](int thread, int pass) {
        const int64_t begin = n * thread / threads, end = n * (thread + 1) / threads;
        if (pass == 0) {  // pages come to lie near the thread that meets them first
          for (float* array : {a.get(), b.get(), c.get()}) std::fill(array + begin, array + end, 1.0F);
        } else {
          KEEL_CALL_ISA(isa, triad(b.get() + begin, c.get() + begin, 0.5F, a.get() + begin, end - begin));
        }
      }).fastest_seconds(seconds);
  return static_cast<double>(kArrays * n) * sizeof(float) / fastest;
}

double measure_reading(Isa isa, int threads, int64_t bytes, double seconds) {
  const int64_t n = std::max<int64_t>(threads, bytes / int64_t{sizeof(float)});
  const Floats a = allocate(n);
  std::vector<float> sums(threads);  // wanted by no one, but computed
  const double fastest = Passes(threads, [&](int thread, int pass) {
                           const int64_t begin = n * thread / threads, end = n * (thread + 1) / threads;
                           if (pass == 0) std::fill(a.get() + begin, a.get() + end, 1.0F);
                           sums[thread] = KEEL_CALL_ISA(isa, read_floats(a.get() + begin, end - begin));
                         }).fastest_seconds(seconds);
  return static_cast<double>(n) * sizeof(float) / fastest;
}

int64_t beyond_caches_bytes() {
  constexpr int64_t kLeast = int64_t{192} << 20;
  const int64_t wanted = std::max(kLeast, 3 * largest_cache_bytes()), memory = available_memory_bytes();
  return memory > 0 ? std::min(wanted, memory / 4) : wanted;
}

double measure_arithmetic(Isa isa, int threads, double seconds) {
  constexpr int64_t kRounds = 400'000;  // a millisecond or so
  double flops = 0;
  std::vector<float> sums(threads);
  const double fastest = Passes(threads, [&](int thread, int /*pass*/) {
                           const double done = KEEL_CALL_ISA(isa, multiply_adds(kRounds, 0.5F, 1.0F, sums[thread]));
                           if (thread == 0) flops = done;
                         }).fastest_seconds(seconds);
  return flops * threads / fastest;
}

namespace {

/// Memory of a GPU.
class OnGpu {
 public:
  OnGpu(Context& ctx, int64_t floats)
      : ctx_(ctx), memory_(allocate_on_device(ctx, floats * static_cast<int64_t>(sizeof(float)))) {}
  ~OnGpu() { release_on_device(ctx_, memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  Context& ctx_;
  void* memory_;
};

double seconds_of(Context& ctx, const std::function<void()>& enqueue) {
  const int64_t begin = cuda::mark_time(ctx.queue());
  enqueue();
  return cuda::seconds_between_times(ctx.queue(), begin, cuda::mark_time(ctx.queue()));
}

double fastest_on_gpu(Context& ctx, double seconds, const std::function<void()>& enqueue) {
  constexpr int kLeastPasses = 3;
  double fastest = seconds_of(ctx, enqueue);
  const Stopwatch total;
  for (int pass = 1; pass < kLeastPasses || total.seconds() < seconds; ++pass) {
    fastest = std::min(fastest, seconds_of(ctx, enqueue));
  }
  return fastest;
}

}  // namespace

double measure_gpu_bandwidth(Context& ctx, double seconds) {
  constexpr int64_t kArrays = 3, kFloat = sizeof(float), kCaches = 4, kLeast = int64_t{64} << 20;
  const CudaDeviceInfo gpu = cuda::device_info(ctx.queue());
  const int64_t bytes = std::min(std::max(kLeast, kCaches * gpu.l2_bytes), gpu.free_bytes / 2);
  const int64_t n = std::max<int64_t>(1, bytes / (4 * kArrays * kFloat)) * 4;
  const OnGpu a(ctx, n), b(ctx, n), c(ctx, n);
  const double fastest =
      fastest_on_gpu(ctx, seconds, [&] { cuda::triad(ctx.queue(), b.floats(), c.floats(), 0.5F, a.floats(), n); });
  return static_cast<double>(kArrays * n * kFloat) / fastest;
}

double measure_gpu_arithmetic(Context& ctx, double seconds) {
  constexpr double kLeastSeconds = 1e-3;  // of a pass, beside which its beginning and end are nothing
  const OnGpu sum(ctx, 1);
  double flops = 0;
  int64_t rounds = 64;
  const auto pass = [&] { flops = cuda::multiply_adds(ctx.queue(), rounds, 0.5F, 1.0F, sum.floats()); };
  while (seconds_of(ctx, pass) < kLeastSeconds) rounds *= 2;
  const double fastest = fastest_on_gpu(ctx, seconds, pass);
  return flops / fastest;
}

}  // namespace keel
