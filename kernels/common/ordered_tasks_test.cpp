#include "keel/kernels/common/ordered_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "keel/kernels/common/context.h"

namespace keel {
namespace {

/// Chains of tasks: step s of a chain adds to what step s - 1 of all chains left.
TEST(OrderedTasks, ATaskSeesWhatItWaitsFor) {
  constexpr int64_t kChains = 5, kSteps = 400;
  for (const int threads : {1, 2, 3, 8}) {
    Context ctx(threads);
    OrderedTasks tasks;
    std::vector<int64_t> now(kChains, 1), before(kChains);
    std::vector<std::atomic<int>> runs(kChains * kSteps);
    tasks.run(ctx.team(), kSteps, kChains * kSteps, [&](int64_t task, int) {
      const int64_t step = task / kChains, chain = task % kChains;
      ++runs[task];
      if (step > 0 && !tasks.wait(step - 1, kChains)) return;
      std::vector<int64_t>& from = step % 2 == 0 ? now : before;
      std::vector<int64_t>& to = step % 2 == 0 ? before : now;
      to[chain] = 0;
      for (const int64_t x : from) to[chain] = (to[chain] + x) % 1'000'003;
      tasks.report(step);
    });
    int64_t expected = 1;
    for (int64_t step = 0; step < kSteps; ++step) expected = kChains * expected % 1'000'003;
    for (int64_t chain = 0; chain < kChains; ++chain) EXPECT_EQ(now[chain], expected) << threads << " threads";
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST(OrderedTasks, AFailureReachesTheCallerAndThoseWhoWait) {
  Context ctx(3);
  OrderedTasks tasks;
  std::atomic<int> gave_up{0};
  const auto run = [&] {
    tasks.run(ctx.team(), 1, 100, [&](int64_t task, int) {
      if (task == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        throw std::runtime_error("the first");
      }
      if (!tasks.wait(0, 1)) ++gave_up;
    });
  };
  for (int i = 0; i < 20; ++i) EXPECT_THROW(run(), std::runtime_error);
  EXPECT_LE(gave_up, 20 * 2);
  int64_t done = 0;
  tasks.run({}, 1, 10, [&](int64_t, int) { ++done; });
  EXPECT_EQ(done, 10) << "a failed run leaves nothing behind";
}

}  // namespace
}  // namespace keel
