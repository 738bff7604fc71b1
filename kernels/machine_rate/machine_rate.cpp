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
#include "keel/kernels/machine_rate/machine_rate_cpu.h"

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

}  // namespace keel
