#include "doctor.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/base/output.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/version.h"
#include "keel/kernels/common/isa.h"

namespace keel {
namespace {

std::string dnnl_version() {
  const dnnl_version_t* v = dnnl::version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

/// Those that kernels and oneDNN make use of.
std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#if defined(__x86_64__)
#define KEEL_FEATURE(name) \
  if (__builtin_cpu_supports(name)) names.emplace_back(name)
  KEEL_FEATURE("avx");
  KEEL_FEATURE("avx2");
  KEEL_FEATURE("fma");
  KEEL_FEATURE("avx512f");
  KEEL_FEATURE("avx512bw");
  KEEL_FEATURE("avx512dq");
  KEEL_FEATURE("avx512vl");
  KEEL_FEATURE("avx512vnni");
  KEEL_FEATURE("avx512bf16");
#undef KEEL_FEATURE
#endif
  return names;
}

Json advice(const HostInfo& host, int threads) {
  Json list = Json::array();
  if (best_isa() == Isa::generic) list.push_back("no AVX2: kernels run several times slower than on x86-64-v3");
  if (best_isa() == Isa::avx2) list.push_back("no AVX-512: matrix products run at about half the rate per core");
  if (!host.gpus.empty()) list.push_back("this version has no CUDA backend: the GPUs are not used");
  if (threads < host.cores)
    list.push_back(fmt::format("{} of {} cores are used: raise --threads", threads, host.cores));
  if (threads > host.cores)
    list.push_back(fmt::format("{} threads on {} cores: threads will wait for each other", threads, host.cores));
  if (host.memory_bytes > 0 && host.memory_bytes < (int64_t{4} << 30))
    list.push_back("less than 4 GiB of memory: see --plan before a run");
  if (free_disk_bytes(".") < (int64_t{10} << 30))
    list.push_back("less than 10 GiB free here: checkpoints need 12 bytes a parameter");
  return list;
}

}  // namespace

int doctor(bool as_json, int threads) {
  const HostInfo host = host_info();
  Json json;
  json["version"] = version();
  json["cpu"] = host.cpu;
  json["cores"] = host.cores;
  json["threads"] = threads;
  json["cpu_features"] = cpu_features();
  json["instruction_set"] = isa_name(best_isa());
  json["memory_bytes"] = host.memory_bytes;
  json["gpus"] = host.gpus;
  json["gpu_driver"] = host.gpu_driver.empty() ? Json(nullptr) : Json(host.gpu_driver);
  json["cuda"] = "not built in";
  json["libraries"] = {{"oneDNN", dnnl_version()}};
  json["free_disk_bytes"] = free_disk_bytes(".");
  json["device"] = "cpu";
  json["advice"] = advice(host, threads);
  if (as_json) {
    write_stdout(json_text(json, 2) + "\n");
    return 0;
  }
  std::string text;
  const auto row = [&](const char* name, const std::string& value) { text += fmt::format("{:<16}{}\n", name, value); };
  row("keel", version());
  row("cpu", host.cpu);
  row("cores", fmt::format("{} usable, {} threads would run", host.cores, threads));
  row("cpu features", fmt::format("{}", fmt::join(cpu_features(), " ")));
  row("kernels for", isa_name(best_isa()));
  row("memory", format_bytes(host.memory_bytes));
  row("gpus", host.gpus.empty() ? "none found" : fmt::format("{}", fmt::join(host.gpus, ", ")));
  row("gpu driver", host.gpu_driver.empty() ? "none found" : host.gpu_driver);
  row("cuda backend", "not built in");
  row("oneDNN", dnnl_version());
  row("free disk here", format_bytes(free_disk_bytes(".")));
  row("would run on", "cpu");
  for (const Json& line : json["advice"]) row("note", line.get<std::string>());
  if (json["advice"].empty()) row("note", "nothing here would slow a run down");
  write_stdout(text);
  return 0;
}

}  // namespace keel
