#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "keel/base/signals.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/matmul/matmul.h"

namespace keel {
namespace {

/// Asks the thread that made it to stop, again and again.
class Asking {
 public:
  explicit Asking(int signal)
      : asker_([this, signal, thread = pthread_self()] {
          while (!ends_) {
            if (!stop_requested()) pthread_kill(thread, signal);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
          }
        }) {}
  ~Asking() {
    ends_ = true;
    asker_.join();
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::thread asker_;
};

/// Small blocks of the heap, always others, so that what a product allocates comes to lie at changing places among them.
class SmallBlocks {
 public:
  /// False if the oldest, which goes, was overwritten.
  bool change() {
    std::vector<char>& block = blocks_[changes_ % blocks_.size()];
    const bool is_whole = std::all_of(block.begin(), block.end(), [](char c) { return c == kContent; });
    ++changes_;
    block = std::vector<char>(1 + 37 * changes_ % 4096, kContent);
    return is_whole;
  }

 private:
  static constexpr char kContent = 0x5A;
  std::array<std::vector<char>, 64> blocks_;
  size_t changes_ = 0;
};

/// 0 if at least `least` signals came during products and none changed anything.
int count_signals_during_products(int64_t least) {
  install_signal_handlers();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Context ctx(1);
  constexpr int64_t kM = 128, kN = 256, kK = 256, kStride = 256;  // such an A^T is packed into memory of the library
  const std::vector<float> a(kK * kStride, 0.5F), b(kK * kN, 0.25F);
  std::vector<float> c(kM * kN);
  SmallBlocks blocks;
  int64_t signals = 0;
  const Asking asking(SIGINT);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  while (signals < least) {
    if (!blocks.change()) return 2;
    matmul(ctx, View<const float, 2>(a.data(), {kK, kM}, {kStride, 1}), View<const float, 2>(b.data(), {kK, kN}),
           View<float, 2>(c.data(), {kM, kN}), Transpose::a);
    for (const float value : c) {
      if (value != 0.125F * kK) return 1;
    }
    if (!stop_requested()) continue;
    ++signals;
    clear_stop();
  }
  return 0;
}

TEST(Matmul, SignalsDuringAProductHarmNothing) {
  EXPECT_EXIT(std::_Exit(count_signals_during_products(300)), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace keel
