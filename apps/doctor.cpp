#include "doctor.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/base/output.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/version.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/isa.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

std::string dnnl_version() {
  const dnnl_version_t* v = dnnl::version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

/// The newest instruction set that oneDNN makes use of, by its own account, which it gives for x86-64 only.
std::string dnnl_instruction_set() {
#if defined(__x86_64__)
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse4.1";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      break;
  }
#endif
  return "generic";
}

/// The fastest that this processor runs, whatever KEEL_ISA asks for.
Isa fastest_isa() {
  for (Isa isa : {Isa::avx512, Isa::avx2}) {
    if (isa_available(isa)) return isa;
  }
  return Isa::generic;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) names.emplace_back(isa_name(isa));
  }
  return names;
}

/// "" where it is not set.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Those that kernels and oneDNN make use of.
std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#if defined(__x86_64__)
#define KEEL_FEATURE(name) \
  if (__builtin_cpu_supports(name)) names.emplace_back(name)
  KEEL_FEATURE("sse4.1");
  KEEL_FEATURE("sse4.2");
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

/// What keeps kernels and oneDNN from being as fast as they can be.
void advise_on_instruction_sets(Json& list) {
  const Isa fastest = fastest_isa();
  if (best_isa() != fastest) {
    list.push_back(
        fmt::format("KEEL_ISA={} is set: unset it for the faster {}", isa_name(best_isa()), isa_name(fastest)));
  }
#if defined(__x86_64__)
  if (fastest == Isa::generic) list.push_back("no AVX2: kernels run several times slower than on x86-64-v3");
  if (fastest == Isa::avx2) list.push_back("no AVX-512: matrix products run at about half the rate per core");
  const bool limited =
      fastest != Isa::generic && (dnnl_instruction_set() == "sse4.1" || dnnl_instruction_set() == "avx");
  if (limited || (fastest == Isa::avx512 && dnnl_instruction_set().substr(0, 6) != "avx512")) {
    list.push_back(fmt::format("oneDNN uses {} only: see that ONEDNN_MAX_CPU_ISA and DNNL_MAX_CPU_ISA are not set",
                               dnnl_instruction_set()));
  }
#else
  list.push_back("kernels are portable code here: no instruction set beyond the architecture's baseline is used");
#endif
}

/// `devices`: that CUDA can use; none where it was not asked.
Json advice(const HostInfo& host, std::optional<int> devices, int threads) {
  Json list = Json::array();
  advise_on_instruction_sets(list);
  if (!host.gpus.empty() && !has_cuda_backend(CudaBackend::device)) {
    list.push_back("this build has no CUDA backend (libkeel_cuda.so): the GPUs are not used");
  } else if (!host.gpus.empty() && devices && *devices == 0) {
    list.push_back("CUDA cannot use the GPUs here: see that its driver is new enough and its libraries are found");
  }
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

/// C = A B of small whole numbers, which every type that a GPU multiplies in gives exactly.
bool multiplies_rightly(Context& ctx) {
  constexpr int64_t n = 64;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int64_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(i % 5);
    b[i] = static_cast<float>(i % 7 - 3);
  }
  DeviceCopy<float> on_device[3] = {DeviceCopy<float>(ctx), DeviceCopy<float>(ctx), DeviceCopy<float>(ctx)};
  const HostView<float, 2> result(c.data(), {n, n});
  matmul(ctx, on_device[0].of(HostView<const float, 2>(a.data(), {n, n})),
         on_device[1].of(HostView<const float, 2>(b.data(), {n, n})), on_device[2].in_place_of(result));
  on_device[2].fetch(result);
  ctx.synchronize();
  on_device[2].receive(result);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      float expected = 0;
      for (int64_t k = 0; k < n; ++k) expected += a[row * n + k] * b[k * n + column];
      if (c[row * n + column] != expected) return false;
    }
  }
  return true;
}

/// Null for the CPU. Else what came of opening the GPU, multiplying on it and fetching what it made.
Json try_device(const DeviceChoice& choice) {
  if (choice.device == Device::cpu) return nullptr;
  Json json{{"works", false}};
  try {
    Context ctx(choice, 1);
    const CudaDeviceInfo info = cuda::device_info(ctx.queue());
    json["name"] = info.name;
    json["compute_capability"] = fmt::format("{}.{}", info.compute_capability / 10, info.compute_capability % 10);
    json["memory_bytes"] = info.memory_bytes;
    json["free_bytes"] = info.free_bytes;
    json["works"] = multiplies_rightly(ctx);
    if (!json["works"].get<bool>()) json["error"] = "a matrix product came out wrong";
  } catch (const Error& error) {
    json["error"] = error.what();
  }
  return json;
}

std::string text_of_trial(const Json& trial) {
  const std::string what =
      trial.contains("name")
          ? fmt::format("{}, compute capability {}, {} of {} free: ", trial["name"].get<std::string>(),
                        trial["compute_capability"].get<std::string>(),
                        format_bytes(trial["free_bytes"].get<int64_t>()),
                        format_bytes(trial["memory_bytes"].get<int64_t>()))
          : "";
  return what + (trial["works"].get<bool>() ? "it works" : "does not work: " + trial["error"].get<std::string>());
}

}  // namespace

int doctor(const DeviceChoice& choice, bool as_json, int threads) {
  const HostInfo host = host_info();
  // A process uses one backend.
  const bool is_emulated = choice.device == Device::cuda && choice.backend == CudaBackend::emulated;
  std::optional<int> devices;
  if (!is_emulated) devices = host.gpus.empty() ? 0 : cuda_device_count();
  Json json;
  json["version"] = version();
  json["cpu"] = host.cpu;
  json["cores"] = host.cores;
  json["threads"] = threads;
  json["cpu_features"] = cpu_features();
  const std::string asked = environment("KEEL_ISA");
  json["instruction_sets"] = instruction_sets();
  json["instruction_set"] = isa_name(best_isa());
  json["instruction_set_asked_for"] = asked.empty() ? Json(nullptr) : Json(asked);
  json["onednn_instruction_set"] = dnnl_instruction_set();
  json["memory_bytes"] = host.memory_bytes;
  json["gpus"] = host.gpus;
  json["gpu_driver"] = host.gpu_driver.empty() ? Json(nullptr) : Json(host.gpu_driver);
  json["cuda"] = has_cuda_backend(CudaBackend::device) ? "built in" : "not built in";
  json["cuda_emulated"] = has_cuda_backend(CudaBackend::emulated) ? "built in" : "not built in";
  json["cuda_devices"] = devices ? Json(*devices) : Json(nullptr);
  json["libraries"] = {{"oneDNN", dnnl_version()}};
  json["free_disk_bytes"] = free_disk_bytes(".");
  json["device"] = to_string(choice);
  json["device_trial"] = try_device(choice);
  json["advice"] = advice(host, devices, threads);
  const Json& trial = json["device_trial"];
  const auto end = [&] {
    if (trial.is_null() || trial["works"].get<bool>()) return kExitOk;
    throw Error(ErrorKind::device, "the device does not work: " + trial["error"].get<std::string>(), to_string(choice));
  };
  if (as_json) {
    write_stdout(json_text(json, 2) + "\n");
    return end();
  }
  std::string text;
  const auto row = [&](const char* name, const std::string& value) { text += fmt::format("{:<16}{}\n", name, value); };
  row("keel", version());
  row("cpu", host.cpu);
  row("cores", fmt::format("{} usable, {} threads would run", host.cores, threads));
  row("cpu features", cpu_features().empty() ? "none asked for" : fmt::format("{}", fmt::join(cpu_features(), " ")));
  row("kernels for", fmt::format("{}{}, of {}", isa_name(best_isa()), asked.empty() ? "" : " (KEEL_ISA)",
                                 fmt::join(instruction_sets(), " ")));
  row("memory", format_bytes(host.memory_bytes));
  row("gpus", host.gpus.empty() ? "none found" : fmt::format("{}", fmt::join(host.gpus, ", ")));
  row("gpu driver", host.gpu_driver.empty() ? "none found" : host.gpu_driver);
  row("cuda backend", fmt::format("{}; emulated on the CPU, for tests: {}", json["cuda"].get<std::string>(),
                                  json["cuda_emulated"].get<std::string>()));
  if (!host.gpus.empty() && devices) row("cuda can use", fmt::format("{} of them", *devices));
  row("oneDNN", fmt::format("{}, products for {}", dnnl_version(), dnnl_instruction_set()));
  row("free disk here", format_bytes(free_disk_bytes(".")));
  row("would run on", to_string(choice));
  if (!trial.is_null()) row("tried it", text_of_trial(trial));
  for (const Json& line : json["advice"]) row("note", line.get<std::string>());
  if (json["advice"].empty()) row("note", "nothing here would slow a run down");
  write_stdout(text);
  return end();
}

}  // namespace keel
