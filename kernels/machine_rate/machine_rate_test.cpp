#include "keel/kernels/machine_rate/machine_rate.h"

#include <vector>

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/kernels/machine_rate/machine_rate_cpu.h"
#include "support/contexts.h"
#include "support/no_threads.h"

namespace keel {
namespace {

constexpr Isa kIsas[] = {Isa::generic, Isa::avx2, Isa::avx512};

TEST(MachineRate, TriadWritesEachElementAndNoOther) {
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
      std::vector<float> a(n + 2, -1), b(n), c(n);
      for (int64_t i = 0; i < n; ++i) {
        b[i] = static_cast<float>(i);
        c[i] = static_cast<float>(3 * i + 1);
      }
      KEEL_CALL_ISA(isa, triad(b.data(), c.data(), 2, a.data() + 1, n));
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(a[i + 1], b[i] + 2 * c[i]) << isa_name(isa) << " " << n;
      EXPECT_EQ(a.front(), -1);
      EXPECT_EQ(a.back(), -1);
    }
  }
}

TEST(MachineRate, ReadsEachElementOnce) {
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    for (const int64_t n : {0, 1, 15, 31, 32, 127, 128, 1000}) {
      std::vector<float> a(n);
      for (int64_t i = 0; i < n; ++i) a[i] = static_cast<float>(i + 1);
      EXPECT_EQ(KEEL_CALL_ISA(isa, read_floats(a.data(), n)), static_cast<float>(n * (n + 1) / 2))
          << isa_name(isa) << n;
    }
  }
}

TEST(MachineRate, MultiplyAddsAreDoneAndCounted) {
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    float sum = 0, more = 0;
    const double flops = KEEL_CALL_ISA(isa, multiply_adds(3, 2, 1, sum));  // x -> 8 x + 7 for x = 0 .. 11, in each lane
    const double lanes = flops / (2 * 3 * 12);
    EXPECT_EQ(sum, lanes * (8 * 66 + 7 * 12)) << isa_name(isa);
    EXPECT_EQ(KEEL_CALL_ISA(isa, multiply_adds(30, 0.5F, 1, more)), 10 * flops);
  }
}

TEST(MachineRate, RatesAreThoseOfSomeMachine) {
  for (const int threads : {1, 2, 3}) {
    const double bandwidth = measure_bandwidth(best_isa(), threads, int64_t{6} << 20, 0.01);
    EXPECT_TRUE(bandwidth > 1e6 && bandwidth < 1e14) << bandwidth;
    const double reading = measure_reading(best_isa(), threads, int64_t{6} << 20, 0.01);
    EXPECT_TRUE(reading > 1e6 && reading < 1e14) << reading;
    const double arithmetic = measure_arithmetic(best_isa(), threads, 0.01);
    EXPECT_TRUE(arithmetic > 1e6 && arithmetic < 1e15) << arithmetic;
  }
  EXPECT_GT(measure_bandwidth(Isa::generic, 2, 0, 0), 0) << "as many elements as threads at least";
  EXPECT_GT(measure_reading(Isa::generic, 2, 0, 0), 0);
}

TEST(MachineRate, MemoryIsBeyondTheCaches) {
  const int64_t bytes = beyond_caches_bytes();
  EXPECT_GE(bytes, int64_t{1} << 20);
  EXPECT_LT(bytes, int64_t{1} << 40);
}

TEST(MachineRate, ThreadsThatCannotBeHadAreAnError) {
  const auto code = testing::exit_code_without_threads([] { measure_arithmetic(Isa::generic, 3, 0); });
  if (!code) GTEST_SKIP() << "threads cannot be limited here";
  EXPECT_EQ(*code, kExitDevice);
}

}  // namespace
}  // namespace keel
