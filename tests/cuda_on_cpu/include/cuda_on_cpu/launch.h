#pragma once

// cudaLaunchKernelEx: keeps the arguments until the stream reaches the launch.

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../driver_types.h"

namespace cuda_on_cpu {

/// A kernel with its arguments.
class KernelCall {
 public:
  virtual ~KernelCall() = default;
  /// One CUDA thread of it.
  virtual void run() const = 0;
  virtual std::unique_ptr<KernelCall> clone() const = 0;
  /// The kernel's address, which it is known by.
  virtual const void* kernel() const = 0;
  /// The index of the first argument that is a pointer to what a kernel may not use, or -1.
  virtual int bad_pointer() const = 0;
};

/// Whether kernels may use what it points to: memory of the device, shared or pinned memory, or nothing (null).
bool is_device_pointer(const void* pointer);

template <class... Parameters>
class KernelCallOf final : public KernelCall {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "kernel arguments are copied byte by byte");
  static_assert((sizeof(Parameters) + ... + 0) <= 32764, "a kernel has at most 32764 bytes of arguments");

 public:
  template <class... Arguments>
  explicit KernelCallOf(void (*kernel)(Parameters...), Arguments&&... arguments)
      : kernel_(kernel), arguments_(std::forward<Arguments>(arguments)...) {}
  void run() const override { std::apply(kernel_, arguments_); }
  std::unique_ptr<KernelCall> clone() const override { return std::make_unique<KernelCallOf>(*this); }
  const void* kernel() const override { return reinterpret_cast<const void*>(kernel_); }
  int bad_pointer() const override {
    int index = 0, bad = -1;
    const auto check = [&](const auto& argument) {
      if constexpr (std::is_pointer_v<std::decay_t<decltype(argument)>>) {
        if (bad < 0 && !is_device_pointer(argument)) bad = index;
      }
      ++index;
    };
    std::apply([&](const auto&... each) { (check(each), ...); }, arguments_);
    return bad;
  }

 private:
  void (*kernel_)(Parameters...);
  std::tuple<std::remove_const_t<Parameters>...> arguments_;
};

cudaError_t launch(const cudaLaunchConfig_t* config, const KernelCall& call);

}  // namespace cuda_on_cpu

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel takes as many arguments as it has parameters");
  return cuda_on_cpu::launch(config,
                             cuda_on_cpu::KernelCallOf<Parameters...>(kernel, std::forward<Arguments>(arguments)...));
}
