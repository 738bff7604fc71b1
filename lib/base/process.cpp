#include "keel/base/process.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "keel/base/quantity.h"
#include "process_internal.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int cores_of_affinity() {
  // More than 1024 cores need a larger set.
  for (int cores = 1024; cores <= 1 << 17; cores *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cores));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cores));
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(1, count);
  }
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

/// "key:   123 kB" of a /proc file, in bytes.
int64_t proc_kilobytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size() + 1, key + ":") == 0) {
      return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

int64_t physical_memory() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

/// The folder of this process's group, of a controller in version 1, "" in version 2.
std::string group_of(std::string_view controller, const fs::path& proc_cgroup) {
  std::ifstream file(proc_cgroup);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool matches =
        controller.empty() ? names == ",," : names.find("," + std::string(controller) + ",") < names.size();
    if (matches) return line.substr(second + 1);
  }
  return "/";
}

/// Calls visit for the group's folder and each one above it, down to the root. In a container the group's path may not
/// exist below the mount; the root then is the container's own group.
template <class Visit>
void visit_levels(const fs::path& root, const std::string& group, Visit visit) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  while (!relative.empty() && relative != "." && *relative.begin() != "..") {
    visit(root / relative);
    relative = relative.parent_path();
  }
  visit(root);
}

}  // namespace

namespace detail {

double cgroup_cpu_quota(const fs::path& root, const fs::path& proc_cgroup) {
  double quota = std::numeric_limits<double>::infinity();
  const auto take = [&](std::optional<double> limit, std::optional<double> period) {
    if (limit && period && *limit > 0 && *period > 0) quota = std::min(quota, *limit / *period);
  };
  visit_levels(root, group_of("", proc_cgroup), [&](const fs::path& level) {
    std::istringstream line(first_line(level / "cpu.max"));
    std::string limit, period;
    line >> limit >> period;
    take(parse_real(limit), parse_real(period));
  });
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    visit_levels(root / mount, group_of("cpu", proc_cgroup), [&](const fs::path& level) {
      take(parse_real(first_line(level / "cpu.cfs_quota_us")), parse_real(first_line(level / "cpu.cfs_period_us")));
    });
  }
  return quota;
}

int64_t cgroup_memory_limit(const fs::path& root, const fs::path& proc_cgroup) {
  int64_t limit = std::numeric_limits<int64_t>::max();
  const auto take = [&](const fs::path& file) {
    if (const auto bytes = parse_integer(first_line(file)); bytes && *bytes > 0) limit = std::min(limit, *bytes);
  };
  visit_levels(root, group_of("", proc_cgroup), [&](const fs::path& level) { take(level / "memory.max"); });
  visit_levels(root / "memory", group_of("memory", proc_cgroup),
               [&](const fs::path& level) { take(level / "memory.limit_in_bytes"); });
  return limit;
}

std::vector<std::string> nvidia_gpus(const fs::path& proc, const fs::path& dev) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(proc / "gpus", code), end; !code && entry != end; entry.increment(code)) {
    std::ifstream file(entry->path() / "information");
    for (std::string line; std::getline(file, line);) {
      const size_t name = line.compare(0, 6, "Model:") == 0 ? line.find_first_not_of(" \t", 6) : std::string::npos;
      if (name != std::string::npos) names.push_back(line.substr(name));
    }
  }
  std::sort(names.begin(), names.end());
  if (!names.empty()) return names;
  for (int i = 0; fs::exists(dev / ("nvidia" + std::to_string(i)), code); ++i) names.emplace_back("NVIDIA GPU");
  return names;
}

std::string nvidia_driver(const fs::path& proc) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ..."
  std::istringstream words(first_line(proc / "version"));
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  }
  return {};
}

}  // namespace detail

int available_cores() {
  double cores = cores_of_affinity();
  cores = std::min(cores, std::ceil(detail::cgroup_cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup")));
  if (const char* slurm = std::getenv("SLURM_CPUS_PER_TASK")) {
    if (const auto given = parse_integer(slurm); given && *given > 0) {
      cores = std::min(cores, static_cast<double>(*given));
    }
  }
  return static_cast<int>(std::max(1.0, cores));
}

int64_t available_memory_bytes() {
  return std::min(physical_memory(), detail::cgroup_memory_limit("/sys/fs/cgroup", "/proc/self/cgroup"));
}

HostInfo host_info() {
  constexpr const char* kDriver = "/proc/driver/nvidia";
  return {.cpu = cpu_model(),
          .cores = available_cores(),
          .memory_bytes = available_memory_bytes(),
          .gpus = detail::nvidia_gpus(kDriver, "/dev"),
          .gpu_driver = detail::nvidia_driver(kDriver)};
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

ProcessMemory process_memory() {
  constexpr const char* kStatus = "/proc/self/status";
  return {proc_kilobytes(kStatus, "RssAnon"), proc_kilobytes(kStatus, "VmRSS"), proc_kilobytes(kStatus, "VmHWM")};
}

Error thread_error(int threads, const std::system_error& refused) {
  return {
      ErrorKind::memory, "cannot start " + std::to_string(threads) + " threads", refused.code().message(),
      "ask for fewer, or raise the limits of processes and memory (ulimit -u, ulimit -v, a container's pids limit)"};
}

}  // namespace keel
