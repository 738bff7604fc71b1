#include "keel/kernels/common/operation_profile.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "keel/base/clock.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "support/test_device.h"

namespace keel {
namespace {

/// Keeps the clock going.
void work(double seconds) {
  for (const Stopwatch watch; watch.seconds() < seconds;) {
  }
}

TEST(OperationProfile, CostsAddUpByName) {
  Context ctx(1);
  OperationProfile profile;
  ctx.set_profile(&profile);
  for (int i = 1; i <= 3; ++i) {
    const OperationScope scope(ctx, "a", {.flops = 10.0 * i, .bytes = 1.0 * i});
  }
  { const OperationScope scope(ctx, "b", {.bytes = 7}); }
  const auto totals = profile.totals();
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals.at("a").calls, 3);
  EXPECT_EQ(totals.at("a").flops, 60);
  EXPECT_EQ(totals.at("a").bytes, 6);
  EXPECT_EQ(totals.at("b").calls, 1);
  EXPECT_EQ(totals.at("b").flops, 0);
  EXPECT_EQ(totals.at("b").bytes, 7);
  profile.clear();
  EXPECT_TRUE(profile.totals().empty());
  EXPECT_EQ(profile.seconds(), 0);
}

TEST(OperationProfile, AnOperationThatRunsOthersKeepsItsOwnTime) {
  Context ctx(1);
  OperationProfile profile;
  ctx.set_profile(&profile);
  const Stopwatch watch;
  {
    const OperationScope outer(ctx, "outer", {});
    work(0.01);
    {
      const OperationScope inner(ctx, "inner", {});
      work(0.03);
      const OperationScope innermost(ctx, "outer", {});  // the same name as one that is open
      work(0.02);
    }
    const OperationScope inner(ctx, "inner", {});
    work(0.03);
  }
  const double passed = watch.seconds();
  const auto totals = profile.totals();
  EXPECT_EQ(totals.at("outer").calls, 2);
  EXPECT_EQ(totals.at("inner").calls, 2);
  // Each has what was worked in it at least, and nothing counts twice.
  EXPECT_GE(totals.at("outer").seconds, 0.03);
  EXPECT_GE(totals.at("inner").seconds, 0.06);
  EXPECT_LE(totals.at("outer").seconds + totals.at("inner").seconds, passed);
  EXPECT_EQ(profile.seconds(), totals.at("outer").seconds + totals.at("inner").seconds);
}

TEST(OperationProfile, AContextWithoutOneRecordsNothing) {
  Context ctx(1);
  OperationProfile profile;
  EXPECT_EQ(ctx.profile(), nullptr);
  ctx.set_profile(&profile);
  ctx.set_profile(nullptr);
  { const OperationScope scope(ctx, "a", {.flops = 1}); }
  EXPECT_TRUE(profile.totals().empty());
}

/// Who begins in a scope ends in it, whatever happens to the context meanwhile.
TEST(OperationProfile, AScopeEndsWhereItBegan) {
  Context ctx(1);
  OperationProfile profile;
  ctx.set_profile(&profile);
  {
    const OperationScope scope(ctx, "a", {});
    ctx.set_profile(nullptr);
    const OperationScope other(ctx, "b", {});
  }
  ctx.set_profile(&profile);
  {
    const OperationScope scope(ctx, "c", {});
    work(0.01);
  }
  const auto totals = profile.totals();
  EXPECT_EQ(totals.size(), 2U);
  EXPECT_GE(totals.at("c").seconds, 0.01);
}

/// Two threads that work side by side take as long as one of them.
TEST(OperationProfile, ThreadsShareTheirTimeAndAddUpTheirCosts) {
  Context ctx(2);
  OperationProfile profile;
  ctx.set_profile(&profile);
  const Stopwatch watch;
  for (const int thread : {0, 1, 1}) {
    const OperationScope scope(ctx.worker(thread), "a", {.flops = 10, .bytes = 1});
    work(0.02);
  }
  {
    const OperationScope scope(ctx, "a", {.flops = 100, .bytes = 1});
    work(0.02);
  }
  const double passed = watch.seconds();
  const auto a = profile.totals().at("a");
  EXPECT_EQ(a.calls, 4);
  EXPECT_EQ(a.flops, 130);
  EXPECT_EQ(a.bytes, 4);
  EXPECT_GE(a.seconds, 0.02 + 0.06 / 2);
  EXPECT_EQ(profile.seconds(), a.seconds);
  double threads = 0;
  for (const size_t thread : {0, 1}) threads += profile.of_thread(thread, 2).seconds();
  EXPECT_LE(a.seconds + threads / 2, passed + 1e-9) << "here they took turns, each as if the other worked beside it";
  ctx.set_profile(nullptr);
  EXPECT_EQ(ctx.worker(1).profile(), nullptr);
  profile.clear();
  EXPECT_TRUE(profile.totals().empty());
}

TEST(OperationProfile, OperationsSayWhatTheyHaveToDo) {
  Context ctx(1);
  OperationProfile profile;
  ctx.set_profile(&profile);
  const int64_t m = 5, n = 7, k = 3;
  std::vector<float> a(m * k), b(k * n), c(m * n), d(m * n);
  const View<float, 2> A(a.data(), {m, k}), B(b.data(), {k, n}), C(c.data(), {m, n}), D(d.data(), {m, n});
  matmul(ctx, A, B, C, Transpose::none, true);
  swiglu(ctx, C, C, D);
  const auto totals = profile.totals();
  ASSERT_EQ(totals.size(), 2U);
  const auto& product = totals.at("product, input gradient");
  EXPECT_EQ(product.calls, 1);
  EXPECT_EQ(product.flops, 2 * m * n * k);
  EXPECT_EQ(product.bytes, 4 * (m * k + k * n + 2 * m * n)) << "what is added to is read and written";
  EXPECT_EQ(totals.at("swiglu").bytes, 4 * 3 * m * n);
  EXPECT_GT(totals.at("swiglu").seconds, 0);
}

/// On a device, where operations are only enqueued, as on a CPU.
TEST(OperationProfile, TimesAreTakenWhereOperationsRun) {
  Context ctx = testing::test_context(1);
  OperationProfile profile;
  const int64_t n = 64;
  std::vector<float> a(n * n, 1), b(n * n, 2), c(n * n);
  const View<float, 2> A(a.data(), {n, n}), B(b.data(), {n, n}), C(c.data(), {n, n});
  const Stopwatch watch;
  ctx.set_profile(&profile);
  for (int i = 0; i < 3; ++i) {
    const OperationScope outer(ctx, "outer", {});
    matmul(ctx, A, B, C);
    swiglu(ctx, A, B, C);
  }
  const auto totals = profile.totals();
  const double passed = watch.seconds();
  ASSERT_EQ(totals.size(), 3U);
  double sum = 0;
  for (const auto& [name, own] : totals) {
    EXPECT_EQ(own.calls, 3) << name;
    EXPECT_GE(own.seconds, 0) << name;
    sum += own.seconds;
  }
  EXPECT_GT(totals.at("product, input gradient").seconds, 0);
  EXPECT_GT(totals.at("swiglu").seconds, 0);
  EXPECT_LE(sum, passed) << "nothing counts twice";
  EXPECT_EQ(profile.seconds(), sum) << "nor is anything read twice";
  swiglu(ctx, A, B, C);
  ctx.set_profile(nullptr);
  swiglu(ctx, A, B, C);
  EXPECT_EQ(profile.totals().at("swiglu").calls, 4) << "whose time came when the profile went";
  EXPECT_GT(profile.totals().at("swiglu").seconds, totals.at("swiglu").seconds);
}

TEST(OperationProfile, BytesOfStridedMatricesAreTheirElements) {
  std::vector<float> values(40);
  EXPECT_EQ(bytes_of(View<float, 2>(values.data(), {4, 5}, {10, 1})), 80);
  EXPECT_EQ(bytes_of(View<float, 2>(values.data(), {4, 5}, {10, 1}), 3), 240);
}

}  // namespace
}  // namespace keel
