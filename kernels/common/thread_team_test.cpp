#include "keel/kernels/common/thread_team.h"

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "keel/kernels/common/parallel.h"
#include "keel/kernels/common/row_blocks.h"

namespace keel {
namespace {

TEST(ThreadTeam, EveryPartRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    for (int use = 1; use <= threads; ++use) {
      for (int64_t parts : {0, 1, 2, 7, 1000}) {
        std::vector<std::atomic<int>> runs(parts);
        std::atomic<bool> known{true};
        for_parts({&team, use}, parts, [&](int64_t part, int thread) {
          ++runs[part];
          if (thread < 0 || thread >= use) known = false;
        });
        for (int64_t part = 0; part < parts; ++part) EXPECT_EQ(runs[part], 1) << parts << " parts, part " << part;
        EXPECT_TRUE(known) << parts;
      }
    }
  }
}

TEST(ThreadTeam, ManyShortJobsOneAfterTheOther) {
  ThreadTeam team(4);
  std::vector<int64_t> sums(64);
  constexpr int64_t kJobs = 20000;
  for (int64_t job = 0; job < kJobs; ++job) {
    for_parts({&team, 4}, std::ssize(sums), [&](int64_t part, int) { sums[part] += job; });
    if (job % 5000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the others fall asleep
  }
  for (int64_t sum : sums) EXPECT_EQ(sum, kJobs * (kJobs - 1) / 2);
}

TEST(ThreadTeam, PartsOfABusyThreadAreTakenOver) {
  ThreadTeam team(2);
  std::atomic<int> done{0};
  std::atomic<bool> alone{false};
  for_parts({&team, 2}, 8, [&](int64_t part, int) {
    if (part == 0) {  // holds its thread until all other parts, three of its own share among them, are done
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (done < 7 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      alone = done == 7;
    }
    ++done;
  });
  EXPECT_TRUE(alone);
}

TEST(ThreadTeam, AnExceptionReachesTheCallerAndTheTeamGoesOn) {
  ThreadTeam team(3);
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(for_parts({&team, 3}, 30,
                           [&](int64_t part, int) {
                             if (part % 10 == round % 10) throw std::runtime_error("part");
                           }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    for_parts({&team, 3}, 30, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 30);
  }
}

TEST(ForRanges, CoverEverythingOnce) {
  ThreadTeam team(3);
  for (int64_t n : {0, 1, 2, 5, 100}) {
    for (int64_t elements : {int64_t{0}, kParallelElements, 100 * kParallelElements}) {
      std::vector<std::atomic<int>> runs(n);
      for_ranges({&team, 3}, n, elements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++runs[i];
      });
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(runs[i], 1) << n << ", " << elements;
    }
  }
}

TEST(RowBlocks, PiecesBeginOnChunksAndCoverAllRows) {
  for (int threads : {1, 2, 3, 64}) {
    for (int64_t N : {1, 63, 64, 65, 127, 129, 256, 1000, 2048, 4097}) {
      for (int64_t wanted : {1, 64, 200, 512, 100000}) {
        const RowBlocks blocks(N, wanted, threads);
        int64_t end = 0;
        for (int64_t b = 0; b < blocks.count; ++b) {
          const Rows block = blocks.at(b);
          EXPECT_LE(block.count(), blocks.most_rows());
          int64_t pieces = 0;
          blocks.for_pieces(b, [&](Rows rows) {
            EXPECT_EQ(rows.block, b);
            EXPECT_EQ(rows.begin, end);
            EXPECT_EQ(rows.begin % kReductionRows, 0);
            EXPECT_EQ(rows.continues, pieces > 0);
            EXPECT_GT(rows.end, rows.begin);
            EXPECT_LE(rows.end, block.end);
            EXPECT_LE(rows.count(), std::max(wanted, kReductionRows));
            EXPECT_LE(rows.count(), blocks.most_rows_of_piece());
            end = rows.end;
            ++pieces;
          });
          EXPECT_LE(pieces, blocks.pieces());
          EXPECT_EQ(end, block.end);
        }
        EXPECT_EQ(end, N) << wanted << ", " << threads;
      }
    }
  }
  EXPECT_EQ(RowBlocks(2048, 256, 2).count, 3);
  EXPECT_EQ(RowBlocks(2048, 256, 2).pieces(), 3);
  EXPECT_EQ(RowBlocks(2048, 256, 1).count, 1);
  EXPECT_EQ(RowBlocks(2048, 256, 1).pieces(), 8);
  EXPECT_EQ(RowBlocks(2048, 512, 24).count, 25);
  EXPECT_EQ(RowBlocks(2048, 512, 64).count, 32) << "as many as can be";
  EXPECT_EQ(RowBlocks(0, 512, 4).count, 1);
  EXPECT_EQ(RowBlocks(100, 64, 64).count, 2) << "no more than there are chunks";
}

TEST(RowBlocks, EachBlockHasTheContextOfItsThread) {
  Context ctx(2);
  std::vector<std::atomic<int>> rows(1000);
  std::atomic<bool> single{true};
  for_row_blocks(ctx, RowBlocks(1000, 64, 2), [&](Context& own, Rows r) {
    if (&own == &ctx || own.threads() != 1 || &own.worker(0) != &own) single = false;
    for (int64_t i = r.begin; i < r.end; ++i) ++rows[i];
  });
  for (const auto& count : rows) EXPECT_EQ(count, 1);
  EXPECT_TRUE(single);
  for_row_blocks(ctx, RowBlocks(40, 64, 2), [&](Context& own, Rows) { EXPECT_EQ(&own, &ctx); });
}

}  // namespace
}  // namespace keel
