#include "keel/kernels/common/task_chains.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "keel/kernels/common/context.h"

namespace keel {
namespace {

constexpr auto kAlways = [](int64_t, int64_t) { return true; };

/// Task s of a chain adds up what task s - 1 of all chains left.
TEST(TaskChains, ATaskSeesWhatItWaitedFor) {
  constexpr int64_t kChains = 5, kSteps = 400;
  for (const int threads : {1, 2, 3, 8}) {
    Context ctx(threads);
    TaskChains tasks;
    std::vector<int64_t> now(kChains, 1), before(kChains);
    std::vector<std::atomic<int>> runs(kChains * kSteps);
    const auto all_were_here = [&](int64_t, int64_t step) {
      for (int64_t chain = 0; chain < kChains; ++chain) {
        if (tasks.done(chain) < step) return false;
      }
      return true;
    };
    tasks.run(ctx.team(), kChains, kSteps, all_were_here, [&](int64_t chain, int64_t step, int) {
      ++runs[step * kChains + chain];
      std::vector<int64_t>& from = step % 2 == 0 ? now : before;
      std::vector<int64_t>& to = step % 2 == 0 ? before : now;
      to[chain] = 0;
      for (const int64_t x : from) to[chain] = (to[chain] + x) % 1'000'003;
    });
    int64_t expected = 1;
    for (int64_t step = 0; step < kSteps; ++step) expected = kChains * expected % 1'000'003;
    for (int64_t chain = 0; chain < kChains; ++chain) EXPECT_EQ(now[chain], expected) << threads << " threads";
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

/// Without atomics: two threads in a chain at once lose counts, and are a race to a sanitizer. A single chain is what all
/// threads want.
TEST(TaskChains, OneThreadAtATimeHasAChain) {
  constexpr int64_t kLength = 20000;
  for (const int threads : {1, 2, 4}) {
    Context ctx(threads);
    TaskChains tasks;
    for (const int64_t chains : {1, 1, 1, 3}) {
      std::vector<int64_t> next(chains, 0);
      tasks.run(ctx.team(), chains, kLength, kAlways,
                [&](int64_t chain, int64_t task, int) { next[chain] = next[chain] == task ? task + 1 : -kLength; });
      for (const int64_t x : next) EXPECT_EQ(x, kLength);
    }
  }
}

TEST(TaskChains, AChainMayLagBehind) {
  constexpr int64_t kLength = 300, kLead = 4;
  for (const int threads : {1, 2, 3}) {
    Context ctx(threads);
    TaskChains tasks;
    std::atomic<int64_t> furthest{0};
    const auto may_begin = [&](int64_t chain, int64_t task) {
      return chain == 1 ? tasks.done(0) > task : task < tasks.done(1) + kLead;
    };
    tasks.run(ctx.team(), 2, kLength, may_begin, [&](int64_t chain, int64_t task, int) {
      if (chain == 0) furthest = std::max<int64_t>(furthest, task - tasks.done(1));
      if (chain == 1) {
        EXPECT_GT(tasks.done(0), task);
      }
    });
    EXPECT_LT(furthest, kLead);
    EXPECT_EQ(tasks.done(0), kLength);
    EXPECT_EQ(tasks.done(1), kLength);
  }
}

TEST(TaskChains, AFailureEndsTheRunAndReachesTheCaller) {
  Context ctx(3);
  TaskChains tasks;
  const auto after_the_first = [&](int64_t chain, int64_t) { return chain == 0 || tasks.done(0) > 0; };
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(tasks.run(ctx.team(), 3, 100, after_the_first,
                           [&](int64_t, int64_t, int) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(1));
                             throw std::runtime_error("the first");
                           }),
                 std::runtime_error);
  }
  int64_t done = 0;
  tasks.run({}, 1, 10, kAlways, [&](int64_t, int64_t, int) { ++done; });
  EXPECT_EQ(done, 10) << "a failed run leaves nothing behind";
  tasks.run({}, 3, 0, kAlways, [&](int64_t, int64_t, int) { ++done; });
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace keel
