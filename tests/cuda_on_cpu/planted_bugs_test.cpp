// Every planted bug (planted_bugs.cu) against the check that must notice it. Which checks there are depends on the build:
// the plain one has those of the emulation, one with a sanitizer that sanitizer's.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace cuda_on_cpu {
namespace {

enum class Check {
  always,  ///< an error, whatever the options
  nan,     ///< NaN among the results
  order,   ///< other results in another order of threads
  lazy,    ///< other results with lazy streams
  guard,   ///< a fault with the guard
  fault,   ///< a fault
  asan,
  ubsan,
  tsan,
};

#if defined(KEEL_EMULATION_ASAN)
const std::vector<Check> kChecks = {Check::asan, Check::ubsan};
#elif defined(KEEL_EMULATION_TSAN)
const std::vector<Check> kChecks = {Check::tsan};
#else
const std::vector<Check> kChecks = {Check::always, Check::nan, Check::order, Check::lazy, Check::guard, Check::fault};
#endif

struct Bug {
  const char* name;
  std::map<Check, const char*> noticed_by;  ///< and the text that says so
};
void PrintTo(const Bug& bug, std::ostream* out) {
  *out << bug.name;
}

const char* const kRace = "ThreadSanitizer: data race";
const char* const kAddress = "AddressSanitizer";

const Bug kBugs[] = {
    {"missing_barrier", {{Check::nan, ""}, {Check::order, ""}, {Check::tsan, kRace}}},
    {"reused_too_early", {{Check::order, ""}, {Check::tsan, kRace}}},
    {"uninitialised_shared", {{Check::nan, ""}}},
    {"missing_async_wait", {{Check::nan, ""}}},
    {"lost_update", {{Check::tsan, kRace}}},
    {"lost_update_of_blocks", {{Check::tsan, kRace}}},
    {"between_blocks", {{Check::order, ""}, {Check::tsan, kRace}}},
    {"divergent_barrier",
     {{Check::always, "divergent barrier: other threads wait in __syncthreads at planted_bugs.cu:"}}},
    {"skipped_barrier", {{Check::always, "__syncthreads"}}},
    {"early_return", {{Check::always, "__syncthreads"}}},
    {"absent_lane", {{Check::always, "deadlock: thread (0,0,0) waits for its warp at planted_bugs.cu:"}}},
    {"static_overrun", {{Check::asan, kAddress}}},
    {"dynamic_overrun", {{Check::asan, kAddress}}},
    {"device_overrun", {{Check::asan, kAddress}}},
    {"misaligned", {{Check::ubsan, "misaligned address"}}},
    {"host_pointer", {{Check::always, "argument 0 of a kernel points to no memory of the device"}}},
    {"too_many_threads", {{Check::always, "a block of 1056 x 1 x 1 threads"}}},
    {"too_much_dynamic_shared", {{Check::always, "bytes of dynamic shared memory"}}},
    {"host_reads_device", {{Check::guard, ""}}},
    {"missing_stream_wait", {{Check::lazy, ""}}},
    {"event_recorded_too_early", {{Check::lazy, ""}}},
    {"pinned_reused_too_early", {{Check::lazy, ""}}},
    {"freed_too_early", {{Check::fault, ""}, {Check::asan, kAddress}}},
    {"uninitialised_device", {{Check::nan, ""}}},
};

struct Outcome {
  std::string output;
  int status;
  bool succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  /// Through a shell, which returns 128 + the signal.
  bool faulted() const {
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
           (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGSEGV);
  }
};

Outcome run(const std::string& name, const std::string& options = {}) {
  // A report is wanted, not a core dump; and no attempt to name every frame, which takes seconds.
  const std::string command =
      options + " TSAN_OPTIONS=symbolize=0 ASAN_OPTIONS=symbolize=0 " KEEL_PLANTED_BUGS " " + name + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), count);
  return {output, pclose(pipe)};
}

const char* const kOrders[] = {"KEEL_EMULATION_ORDER=forward", "KEEL_EMULATION_ORDER=reverse",
                               "KEEL_EMULATION_ORDER=random"};

/// Empty if the check notices it, or what it saw instead.
std::string missed(const std::string& name, Check check, const std::string& text) {
  const bool by_result = check == Check::order || check == Check::lazy;
  const Outcome first = run(name, check == Check::guard ? "KEEL_EMULATION_GUARD=1" : "");
  const auto has = [&](const char* part) { return first.output.find(part) != std::string::npos; };
  bool noticed = false;
  switch (check) {
    case Check::always:
      noticed = first.succeeded() && first.output.starts_with("error: ") && has(text.c_str());
      break;
    case Check::nan:
      noticed = first.succeeded() && first.output.starts_with("NaN");
      break;
    case Check::order:
      for (const char* order : kOrders) noticed = noticed || run(name, order).output != first.output;
      break;
    case Check::lazy:
      noticed = run(name, "KEEL_EMULATION_STREAMS=lazy").output != first.output;
      break;
    case Check::guard:
    case Check::fault:
      noticed = first.faulted();
      break;
    case Check::asan:
    case Check::ubsan:
    case Check::tsan:
      noticed = !first.succeeded() && has(text.c_str());
      break;
  }
  if (by_result && !first.succeeded()) noticed = false;
  return noticed ? "" : "status " + std::to_string(first.status) + ", output:\n" + first.output.substr(0, 2000);
}

/// Those that checks of this build notice.
std::vector<Bug> bugs_of_this_build() {
  std::vector<Bug> bugs;
  for (const Bug& bug : kBugs) {
    const bool is_checked =
        std::any_of(kChecks.begin(), kChecks.end(), [&](Check check) { return bug.noticed_by.count(check) > 0; });
    if (is_checked) bugs.push_back(bug);
  }
  return bugs;
}

class PlantedBugs : public testing::TestWithParam<Bug> {};
INSTANTIATE_TEST_SUITE_P(, PlantedBugs, testing::ValuesIn(bugs_of_this_build()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedBugs, AreNoticed) {
  for (const Check check : kChecks) {
    const auto expected = GetParam().noticed_by.find(check);
    if (expected == GetParam().noticed_by.end()) continue;
    EXPECT_EQ(missed(GetParam().name, check, expected->second), "") << "check " << static_cast<int>(check);
  }
}

TEST(PlantedBugsTest, SomeBuildNoticesEach) {
  for (const Bug& bug : kBugs) EXPECT_FALSE(bug.noticed_by.empty()) << bug.name;
}

// The checks say nothing where nothing is wrong, and results are the same whatever the options.
TEST(PlantedBugsTest, CorrectKernelsPass) {
  for (const char* name : {"fine", "correct"}) {
    const Outcome first = run(name);
    EXPECT_TRUE(first.succeeded()) << first.output;
    EXPECT_EQ(first.output.find_first_not_of("0123456789\n"), std::string::npos) << first.output;
    for (const char* order : kOrders) {
      for (const char* rest : {" KEEL_EMULATION_WORKERS=2", " KEEL_EMULATION_STREAMS=lazy KEEL_EMULATION_GUARD=1"}) {
        EXPECT_EQ(run(name, std::string(order) + rest).output, first.output) << name << " " << order << rest;
      }
    }
  }
}

TEST(PlantedBugsTest, OptionsAreChecked) {
  for (const char* option : {"KEEL_EMULATION_ORDER=backward", "KEEL_EMULATION_SEED=x", "KEEL_EMULATION_STREAMS=slow",
                             "KEEL_EMULATION_GUARD=2", "KEEL_EMULATION_WORKERS=0", "KEEL_EMULATION_MEMORY=8GiB",
                             "KEEL_EMULATION_MEMORY=70368744177665", "KEEL_EMULATION_SHARED=232449"}) {
    const Outcome rejected = run("fine", option);
    const std::string set = option;
    const std::string name = set.substr(0, set.find('=')), value = set.substr(set.find('=') + 1);
    const std::string line =
        "error: '" + value + "' is no value of this variable of the environment (" + name + "): it may be ";
    EXPECT_TRUE(rejected.output.starts_with(line)) << rejected.output;
  }
}

}  // namespace
}  // namespace cuda_on_cpu
