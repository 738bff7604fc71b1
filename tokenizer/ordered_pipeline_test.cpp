#include "keel/tokenizer/ordered_pipeline.h"

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>

#include "support/no_threads.h"

namespace keel {
namespace {

using Pipeline = OrderedPipeline<int, int>;

Pipeline::Produce numbers(int count, int64_t bytes = 1) {
  return [count, bytes, next = 0]() mutable -> std::optional<std::pair<int, int64_t>> {
    if (next == count) return std::nullopt;
    return std::pair(next++, bytes);
  };
}

Pipeline::MakeWork squares() {
  return [] {
    return [](int x) {
      if (x % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      return x * x;
    };
  };
}

TEST(OrderedPipeline, KeepsTheOrder) {
  for (int workers : {1, 2, 5}) {
    std::vector<int> results;
    Pipeline(workers, 1000).run(numbers(500), squares(), [&](int x) { results.push_back(x); });
    ASSERT_EQ(results.size(), 500u);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(results[i], i * i);
  }
}

TEST(OrderedPipeline, NothingToDo) {
  Pipeline(2, 10).run(numbers(0), squares(), [](int) { FAIL(); });
}

TEST(OrderedPipeline, BytesUnderWayAreBounded) {
  std::atomic<int64_t> under_way = 0, most = 0;
  const auto produce = [inner = numbers(200, 10), &under_way, &most]() mutable {
    auto item = inner();
    if (item) most = std::max<int64_t>(most, under_way += 10);
    return item;
  };
  Pipeline(3, 50).run(produce, squares(), [&](int) { under_way -= 10; });
  EXPECT_LE(most, 50 + 10 + 10);  // one waits to be let in, one has just been taken out
  std::vector<int> large;
  Pipeline(3, 50).run(numbers(5, 1000), squares(), [&](int x) { large.push_back(x); });
  EXPECT_EQ(large.size(), 5u);
}

TEST(OrderedPipeline, ErrorsComeInTheirTurn) {
  for (int workers : {1, 4}) {
    std::vector<int> results;
    const auto work = [] {
      return [](int x) -> int {
        if (x == 20 || x == 30) throw std::runtime_error("item " + std::to_string(x));
        return x;
      };
    };
    try {
      Pipeline(workers, 1000).run(numbers(100), work, [&](int x) { results.push_back(x); });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "item 20");
    }
    EXPECT_EQ(results.size(), 20u);
  }
}

TEST(OrderedPipeline, AnErrorOfTheProducerComesLast) {
  int taken = 0;
  const auto produce = [inner = numbers(10)]() mutable {
    auto item = inner();
    if (!item) throw std::runtime_error("no more");
    return item;
  };
  EXPECT_THROW(Pipeline(3, 1000).run(produce, squares(), [&](int) { ++taken; }), std::runtime_error);
  EXPECT_EQ(taken, 10);
}

TEST(OrderedPipeline, AnErrorOfTheConsumerEndsEverything) {
  Pipeline pipeline(3, 1000);
  const auto produce = [&]() -> std::optional<std::pair<int, int64_t>> {
    if (pipeline.cancelled()) return std::nullopt;
    return std::pair(1, int64_t{1});  // for ever
  };
  EXPECT_THROW(pipeline.run(produce, squares(), [](int) { throw std::runtime_error("full"); }), std::runtime_error);
}

TEST(OrderedPipeline, ASignalEndsEverything) {
  Pipeline pipeline(2, 1000);
  const auto produce = [&]() -> std::optional<std::pair<int, int64_t>> {
    while (!pipeline.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::nullopt;
  };
  request_stop(SIGINT);
  EXPECT_THROW(pipeline.run(produce, squares(), [](int) {}), Stopped);
  clear_stop();
}

TEST(OrderedPipeline, ThreadsThatCannotBeHadAreAnError) {
  const auto code = testing::exit_code_without_threads([] {
    Pipeline pipeline(2, 1000);
    const auto nothing = []() -> std::optional<std::pair<int, int64_t>> { return std::nullopt; };
    pipeline.run(nothing, squares(), [](int) {});
  });
  if (!code) GTEST_SKIP() << "threads cannot be limited here";
  EXPECT_EQ(*code, kExitDevice);
}

}  // namespace
}  // namespace keel
