#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/export.h"

namespace keel {

/// Cores that this process may use: the smallest of CPU affinity, cgroup quota (v1 or v2, rounded up) and
/// SLURM_CPUS_PER_TASK; at least 1.
KEEL_API int available_cores();
/// Bytes that this process may use: the smaller of RAM and cgroup limit (v1 or v2, every level).
KEEL_API int64_t available_memory_bytes();

struct HostInfo {
  std::string cpu;                     ///< model name, "unknown" if the system does not say
  int cores = 0;                       ///< available_cores()
  int64_t memory_bytes = 0;            ///< available_memory_bytes()
  std::vector<std::string> gpus = {};  ///< model names as NVIDIA's driver lists them; empty without one
  std::string gpu_driver = {};         ///< version of that driver, "" without one
};
KEEL_API HostInfo host_info();
KEEL_API std::string host_name();

struct ProcessMemory {
  int64_t anonymous_bytes = 0;      ///< resident anonymous memory now (RssAnon)
  int64_t resident_bytes = 0;       ///< resident now, mapped files included (VmRSS)
  int64_t peak_resident_bytes = 0;  ///< its highest value so far (VmHWM)
};
/// Of this process, from /proc/self/status; zeros where there is none.
KEEL_API ProcessMemory process_memory();

/// The Error(memory) for a thread that could not be started, of `threads` that were wanted.
KEEL_API Error thread_error(int threads, const std::system_error& refused);

}  // namespace keel
