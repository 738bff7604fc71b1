#include "keel/kernels/common/cuda_backend.h"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "keel/base/error.h"
#include "keel/base/version.h"
#include "keel/kernels/common/cuda_device.h"
#include "keel/kernels/common/library_file.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

const char* file_name(CudaBackend backend) {
  return backend == CudaBackend::device ? "libkeel_cuda.so" : "libkeel_cuda_emulated.so";
}

/// Beside the library that this code is part of; of a program that has it linked in, beside that or in ../lib.
std::optional<fs::path> find_library(CudaBackend backend) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&find_library), &self) == 0 || self.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path folder = fs::canonical(self.dli_fname, ignored).parent_path();
  for (const fs::path& candidate : {folder / file_name(backend), folder / "../lib" / file_name(backend)}) {
    if (fs::exists(candidate, ignored)) return candidate;
  }
  return {};
}

struct Opened {
  CudaBackend backend;
  void* library;
};

std::mutex opening;
std::optional<Opened> opened;

/// Before the backend, which takes longer to open, is: where there is no driver, there is no GPU.
void require_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    throw Error(ErrorKind::device, "there is no GPU here that CUDA can use: no driver (libcuda.so.1)", "--device cuda",
                "--device cpu runs everywhere");
  }
  dlclose(driver);
}

void* symbol_of(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw Error(ErrorKind::internal, "the CUDA backend has no function of this name", name);
  return address;
}

}  // namespace

bool has_cuda_backend(CudaBackend backend) {
  return find_library(backend).has_value();
}

void open_cuda_backend(CudaBackend backend) {
  const std::lock_guard lock(opening);
  if (opened) {
    if (opened->backend == backend) return;
    throw Error(ErrorKind::device, "a process uses one CUDA backend, and the other one is open already",
                file_name(opened->backend));
  }
  const auto path = find_library(backend);
  if (!path) {
    if (backend == CudaBackend::emulated) {
      throw Error(ErrorKind::device, "this build has no emulated device", file_name(backend),
                  "builds of the tests have it, and those with -DKEEL_CUDA_EMULATED=ON");
    }
    throw Error(ErrorKind::device, "this build has no CUDA backend", file_name(backend),
                "docs/gpu.md says how to build it; --device cpu runs everywhere");
  }
  if (backend == CudaBackend::device) require_driver();
  require_whole_library(*path);
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorKind::device, "the CUDA backend cannot be opened", reason == nullptr ? path->string() : reason,
                "CUDA's libraries (libcublasLt) must be where the system finds them (LD_LIBRARY_PATH)");
  }
  const auto version_of = reinterpret_cast<const char* (*)()>(dlsym(library, "keel_cuda_version"));
  if (version_of == nullptr) {
    throw Error(ErrorKind::device, "this is no CUDA backend", path->string(), "install it again");
  }
  if (std::string(version_of()) != version()) {
    throw Error(ErrorKind::device, "the CUDA backend is of version " + std::string(version_of()), path->string(),
                "install both of one version");
  }
  opened = Opened{backend, library};
}

int cuda_device_count() {
  try {
    open_cuda_backend(CudaBackend::device);
    return cuda::device_count();
  } catch (const Error&) {
    return 0;  // asked in order to do without
  }
}

void* detail::cuda_symbol(const char* name) {
  const std::lock_guard lock(opening);
  if (!opened) throw Error(ErrorKind::internal, "no CUDA backend is open", name);
  return symbol_of(opened->library, name);
}

}  // namespace keel
