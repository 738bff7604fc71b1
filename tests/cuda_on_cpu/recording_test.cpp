// Work that is recorded as a graph, with streams that run as late as they may.

#include "keel/kernels/common/recording.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "backend_test_support.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/operation_profile.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

using testing::graph_launches;
using testing::kEmulated;

/// y[0 .. n) += b, where b is what the device has there at the time.
struct Adding {
  Context& ctx;
  float* const memory;
  int calls = 0;

  explicit Adding(Context& context)
      : ctx(context), memory(static_cast<float*>(cuda::allocate(ctx.queue(), 8 * sizeof(float)))) {
    cuda::zero(ctx.queue(), memory, 8 * sizeof(float));
  }
  ~Adding() { cuda::release(ctx.queue(), memory); }
  bool add(int64_t n) {
    ++calls;
    add_bias(ctx, View<const float, 1>(memory, {n}), View<float, 2>(memory + 4, {1, n}));
    return true;
  }
  void set(float value) {
    const std::vector<float> values(4, value);
    copy_to_device(ctx, HostView<const float, 1>(values.data(), {4}), View<float, 1>(memory, {4}));
  }
  float sum() const {
    std::vector<float> values(4);
    copy_to_host(ctx, View<const float, 1>(memory + 4, {4}), HostView<float, 1>(values.data(), {4}));
    ctx.synchronize();
    return std::accumulate(values.begin(), values.end(), 0.0F);
  }
};

class RecordingTest : public ::testing::Test {
 protected:
  bool run(int64_t n) {
    return recording.run({n, 0}, [&] { return adding.add(n); });
  }
  /// Which of these are replayed: "-" is called, "R" replayed.
  std::string replayed(std::initializer_list<int64_t> keys) {
    std::string text;
    for (const int64_t n : keys) {
      EXPECT_TRUE(run(n));
      text += recording.is_replayed() ? 'R' : '-';
    }
    return text;
  }
  Context ctx{kEmulated, 1};
  testing::LazyStreams lazy;
  Recording recording{ctx};
  Adding adding{ctx};
};

TEST_F(RecordingTest, IsMadeTheSecondTimeAndReplayed) {
  const uint64_t before = graph_launches();
  float expected = 0;
  for (int times = 1; times <= 5; ++times) {
    adding.set(static_cast<float>(times));
    EXPECT_TRUE(run(3));
    expected += static_cast<float>(3 * times);
    EXPECT_EQ(adding.sum(), expected) << "what changes is read from the device's memory";
  }
  EXPECT_EQ(adding.calls, 2);
  EXPECT_EQ(graph_launches() - before, 4U);
}

TEST_F(RecordingTest, IsOfOneKey) {
  adding.set(1);
  EXPECT_EQ(replayed({3, 4, 3, 3, 4, 3, 3, 2, 3}), "---R-RR-R");
  EXPECT_EQ(adding.sum(), 3 * 6 + 4 * 2 + 2);
}

TEST_F(RecordingTest, IsMadeLessOftenWhereKeysChange) {
  EXPECT_EQ(replayed({1, 1, 2, 2, 2, 2}), "-R-RRR") << "replaced at once the first time";
  EXPECT_EQ(replayed({3, 3, 3, 3, 3}), "---RR") << "then after four in a row";
  EXPECT_EQ(replayed({4, 4, 4, 4, 4, 4, 4, 3, 4}), "-------R-") << "then after eight";
}

TEST_F(RecordingTest, IsMadeAgainWhenMemoryOfOperationsMoved) {
  (void)ctx.scratch(64);
  EXPECT_EQ(replayed({3, 3, 3}), "-RR");
  const int calls = adding.calls;
  (void)ctx.scratch(1 << 20);
  EXPECT_EQ(replayed({3, 3}), "RR");
  EXPECT_EQ(adding.calls, calls + 1);
}

TEST_F(RecordingTest, StopsWhereTheWorkDoes) {
  EXPECT_TRUE(run(3));
  EXPECT_FALSE(recording.run({3, 0}, [&] {
    adding.add(3);
    return false;
  }));
  EXPECT_EQ(adding.sum(), 0) << "nothing of a recording that was given up runs";
  adding.set(1);
  EXPECT_EQ(replayed({3, 3}), "RR");
  EXPECT_EQ(adding.sum(), 6);
}

// What must not be done while it is recorded: the work is then done as if there were no recordings.
TEST_F(RecordingTest, WorkThatCannotBeRecorded) {
  adding.set(1);
  for (int times = 1; times <= 4; ++times) {
    EXPECT_TRUE(recording.run({3, 0}, [&] {
      adding.set(2);
      return adding.add(3);
    }));
    EXPECT_FALSE(recording.is_replayed());
  }
  EXPECT_EQ(adding.sum(), 4 * 3 * 2);
  EXPECT_NE(recording.problem().find("not permitted when stream is capturing"), std::string::npos)
      << recording.problem();
}

TEST_F(RecordingTest, ErrorsOfTheWorkArriveOnce) {
  EXPECT_TRUE(run(3));
  EXPECT_EQ(testing::kind_of([&] {
              recording.run({3, 0}, [&]() -> bool { throw Error(ErrorKind::shape, "wrong"); });
            }),
            ErrorKind::shape);
  adding.set(1);
  EXPECT_TRUE(run(3));
  EXPECT_EQ(adding.sum(), 3);
}

TEST_F(RecordingTest, NothingIsRecordedWhereItIsNotWanted) {
  OperationProfile profile;
  ctx.set_profile(&profile);
  EXPECT_EQ(replayed({3, 3, 3}), "---");
  ctx.set_profile(nullptr);
  setenv("KEEL_CUDA_GRAPH", "0", 1);
  Recording off(ctx);
  unsetenv("KEEL_CUDA_GRAPH");
  Context cpu(1);
  Recording on_cpu(cpu);
  for (Recording* none : {&off, &on_cpu}) {
    for (int times = 0; times < 3; ++times) {
      EXPECT_TRUE(none->run({3, 0}, [&] { return adding.add(3); }));
      EXPECT_FALSE(none->is_replayed());
    }
  }
}

}  // namespace
}  // namespace keel
