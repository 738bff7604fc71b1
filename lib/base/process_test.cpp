#include "keel/base/process.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "keel/base/clock.h"
#include "keel/base/files.h"
#include "keel/base/process_internal.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::put_file;
using testing::TempDir;

void put_group_file(const TempDir& dir, const std::string& path, const std::string& text) {
  make_directories((dir / path).parent_path());
  put_file(dir / path, text);
}

TEST(CgroupCpuQuota, Version2TakesTheSmallestLevel) {
  const TempDir dir;
  put_file(dir / "cgroup", "0::/user/job\n");
  put_group_file(dir, "fs/user/job/cpu.max", "max 100000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), std::numeric_limits<double>::infinity());
  put_group_file(dir, "fs/user/cpu.max", "350000 100000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), 3.5);
  put_group_file(dir, "fs/user/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), 1.5);
}

TEST(CgroupCpuQuota, InAContainerTheRootIsItsOwnGroup) {
  const TempDir dir;
  put_file(dir / "cgroup", "0::/../../elsewhere\n");
  put_group_file(dir, "fs/cpu.max", "200000 100000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), 2.0);
}

TEST(CgroupCpuQuota, Version1) {
  const TempDir dir;
  put_file(dir / "cgroup", "3:cpu,cpuacct:/job\n2:memory:/m\n");
  put_group_file(dir, "fs/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  put_group_file(dir, "fs/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), std::numeric_limits<double>::infinity());
  put_group_file(dir, "fs/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(detail::cgroup_cpu_quota(dir / "fs", dir / "cgroup"), 0.5);
}

TEST(CgroupMemoryLimit, BothVersions) {
  const TempDir dir;
  put_file(dir / "cgroup", "2:memory:/m\n0::/job\n");
  EXPECT_EQ(detail::cgroup_memory_limit(dir / "fs", dir / "cgroup"), std::numeric_limits<int64_t>::max());
  put_group_file(dir, "fs/job/memory.max", "max\n");
  EXPECT_EQ(detail::cgroup_memory_limit(dir / "fs", dir / "cgroup"), std::numeric_limits<int64_t>::max());
  put_group_file(dir, "fs/memory/m/memory.limit_in_bytes", "3000\n");
  EXPECT_EQ(detail::cgroup_memory_limit(dir / "fs", dir / "cgroup"), 3000);
  put_group_file(dir, "fs/job/memory.max", "2000\n");
  EXPECT_EQ(detail::cgroup_memory_limit(dir / "fs", dir / "cgroup"), 2000);
}

TEST(AvailableCores, FollowsAffinityAndSlurm) {
  EXPECT_GE(available_cores(), 1);
  const auto result = testing::run_in_child([] {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) return 90;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return 91;
    return available_cores() == 1 ? 0 : 92;
  });
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(testing::run_in_child([] {
              (void)::setenv("SLURM_CPUS_PER_TASK", "1", 1);
              const bool obeyed = available_cores() == 1;
              (void)::setenv("SLURM_CPUS_PER_TASK", "nonsense", 1);
              return obeyed && available_cores() >= 1 ? 0 : 1;
            }).code,
            0);
}

TEST(HostInfo, IsFilledIn) {
  const HostInfo host = host_info();
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_EQ(host.cores, available_cores());
  EXPECT_GT(host.memory_bytes, int64_t{1} << 26);
  EXPECT_EQ(host.gpus, detail::nvidia_gpus("/proc/driver/nvidia", "/dev"));
  EXPECT_FALSE(host_name().empty());
}

TEST(HostInfo, ListsGpus) {
  const TempDir dir;
  EXPECT_TRUE(detail::nvidia_gpus(dir / "none", dir.path()).empty());
  put_group_file(dir, "gpus/0000:17:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n");
  put_group_file(dir, "gpus/0000:2a:00.0/information", "Model: NVIDIA A10\n");
  put_group_file(dir, "nvidia0", "");
  EXPECT_EQ(detail::nvidia_gpus(dir.path(), dir.path()), (std::vector<std::string>{"NVIDIA A10", "NVIDIA H200"}));
  put_group_file(dir, "nvidia1", "");
  put_group_file(dir, "nvidiactl", "");
  EXPECT_EQ(detail::nvidia_gpus(dir / "none", dir.path()), (std::vector<std::string>{"NVIDIA GPU", "NVIDIA GPU"}));
}

TEST(HostInfo, NamesTheGpuDriver) {
  const TempDir dir;
  EXPECT_EQ(detail::nvidia_driver(dir.path()), "");
  put_group_file(
      dir, "version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n");
  EXPECT_EQ(detail::nvidia_driver(dir.path()), "550.54.15");
}

TEST(ProcessMemory, SeesAnonymousPages) {
  const ProcessMemory before = process_memory();
  EXPECT_GT(before.anonymous_bytes, 0);
  EXPECT_GE(before.resident_bytes, before.anonymous_bytes);
  EXPECT_GE(before.peak_resident_bytes, before.resident_bytes);
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> block(kBytes, 1);
  const ProcessMemory after = process_memory();
  EXPECT_GE(after.anonymous_bytes - before.anonymous_bytes, static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_EQ(block[kBytes / 2], 1);
}

TEST(Clock, TimeIsIso8601InUtc) {
  EXPECT_EQ(utc_time(std::chrono::system_clock::time_point{}), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_time(std::chrono::system_clock::time_point{std::chrono::seconds(1'767'323'045)}),
            "2026-01-02T03:04:05Z");
  EXPECT_EQ(utc_time().size(), 20U);
  EXPECT_GT(unix_time(), 1.7e9);
}

TEST(Clock, StopwatchRuns) {
  Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double first = watch.restart();
  EXPECT_GE(first, 0.02);
  EXPECT_LT(watch.seconds(), first);
}

}  // namespace
}  // namespace keel
