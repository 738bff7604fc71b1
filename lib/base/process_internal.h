#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace keel::detail {

/// Cores by the quota of this process's control group and of every group above it; infinity if there is none.
/// root: /sys/fs/cgroup, proc_cgroup: /proc/self/cgroup.
double cgroup_cpu_quota(const std::filesystem::path& root, const std::filesystem::path& proc_cgroup);

/// Bytes, likewise; the largest int64 if there is no limit.
int64_t cgroup_memory_limit(const std::filesystem::path& root, const std::filesystem::path& proc_cgroup);

/// Model names that NVIDIA's driver lists; proc: /proc/driver/nvidia. Where a container hides that list, "NVIDIA GPU"
/// for each device file nvidia0, nvidia1, ...; dev: /dev.
std::vector<std::string> nvidia_gpus(const std::filesystem::path& proc, const std::filesystem::path& dev);
/// "550.54.15"; "" without a driver.
std::string nvidia_driver(const std::filesystem::path& proc);

}  // namespace keel::detail
