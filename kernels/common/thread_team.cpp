#include "keel/kernels/common/thread_team.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/process.h"
#include "keel/kernels/common/pause.h"

namespace keel {
namespace {

/// How long a thread looks for work before it sleeps: a few times what the gaps between operations take.
constexpr double kSpinSeconds = 50e-6;

/// Returns once `done` says so, true, or when it is time to sleep.
template <class Done>
bool spin(bool allowed, Done done) {
  if (done()) return true;
  if (!allowed) return false;
  const Stopwatch watch;
  do {
    for (int i = 0; i < 32; ++i) {
      pause_briefly();
      if (done()) return true;
    }
  } while (watch.seconds() < kSpinSeconds);
  return false;
}

/// Threads of the team take no signals but those of their own faults: the others are the main thread's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t others;
    sigfillset(&others);
    for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT}) sigdelset(&others, own);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct ThreadTeam::State {
  /// The parts of a thread that no one has begun.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  // The gate: number of the work << 32 | kOpen | threads inside. A thread that comes after the last part was begun
  // finds it closed.
  static constexpr uint64_t kOpen = uint64_t{1} << 31, kInside = kOpen - 1;

  const int size;
  const bool may_spin;
  std::vector<Share> shares;
  Part body = nullptr;
  void* argument = nullptr;
  int threads = 0;
  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;

  alignas(64) std::atomic<uint64_t> gate{0};
  alignas(64) std::atomic<uint32_t> number{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  explicit State(int count) : size(count), may_spin(count <= available_cores()), shares(count) {}

  void run_share(Share& share, int thread) {
    while (!failed.load(std::memory_order_relaxed)) {
      const int64_t part = share.next.fetch_add(1, std::memory_order_relaxed);
      if (part >= share.end) return;
      try {
        body(argument, part, thread);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        failed = true;
      }
    }
  }

  /// Its own share first, then those of its neighbours.
  void run_parts(int thread) {
    for (int i = 0; i < threads; ++i) run_share(shares[(thread + i) % threads], thread);
  }

  uint32_t next_number(uint32_t seen) {
    if (spin(may_spin, [&] { return number.load() != seen; })) return number.load();
    ++sleepers;
    number.wait(seen);
    --sleepers;
    return number.load();
  }

  void join_in(uint32_t work, int thread) {
    uint64_t now = gate.load();
    while (now >> 32 == work && (now & kOpen) != 0) {
      if (!gate.compare_exchange_weak(now, now + 1)) continue;
      if (thread < threads) run_parts(thread);
      if ((gate.fetch_sub(1) & (kOpen | kInside)) == 1) gate.notify_one();
      return;
    }
  }

  void serve(int thread) {
    uint32_t seen = 0;
    while (true) {
      seen = next_number(seen);
      if (stopping) return;
      join_in(seen, thread);
    }
  }

  void open_gate() {
    const uint32_t work = number.load() + 1;
    gate.store(uint64_t{work} << 32 | kOpen);
    number.store(work);
    if (sleepers.load() > 0) number.notify_all();
  }

  void close_gate() {
    uint64_t now = gate.fetch_and(~kOpen) & ~kOpen;
    while ((now & kInside) != 0) {
      if (!spin(may_spin, [&] { return (gate.load() & kInside) == 0; })) gate.wait(now);
      now = gate.load();
    }
  }

  void stop() {
    stopping = true;
    ++number;
    number.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadTeam::ThreadTeam(int threads) : state_(std::make_unique<State>(threads)) {
  const SignalsBlocked blocked;
  try {
    for (int t = 1; t < threads; ++t) state_->workers.emplace_back([this, t] { state_->serve(t); });
  } catch (const std::system_error& refused) {
    state_->stop();
    throw thread_error(threads, refused);
  }
}

ThreadTeam::~ThreadTeam() {
  state_->stop();
}

int ThreadTeam::size() const {
  return state_->size;
}

void ThreadTeam::run(int64_t parts, int threads, Part body, void* argument) {
  State& s = *state_;
  s.body = body;
  s.argument = argument;
  s.threads = threads;
  s.failed = false;
  for (int t = 0; t < threads; ++t) {
    s.shares[t].next.store(parts * t / threads, std::memory_order_relaxed);
    s.shares[t].end = parts * (t + 1) / threads;
  }
  s.open_gate();
  s.run_parts(0);
  s.close_gate();
  if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

}  // namespace keel
