#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/view.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/memory/memory.h"

namespace keel::bench {

/// Memory of the device for one operation's operands.
class Operands {
 public:
  explicit Operands(Context& ctx) : ctx_(ctx) {}
  ~Operands() {
    ctx_.synchronize();
    for (void* memory : taken_) give_back(memory);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Pseudo-random values in [-1, 1) of a repeated piece.
  template <class T>
  T* numbers(int64_t n) {
    static const std::vector<T> kValues = random_values<T>();
    T* to = take<T>(n);
    for (int64_t i = 0; i < n; i += std::ssize(kValues)) {
      const int64_t part = std::min<int64_t>(std::ssize(kValues), n - i);
      copy_to_device<T>(ctx_, {kValues.data(), {part}}, {to + i, {part}});
    }
    ctx_.synchronize();
    return to;
  }
  View<float, 1> vector(int64_t n) { return {numbers<float>(n), {n}}; }
  View<float, 2> matrix(int64_t rows, int64_t d) { return {numbers<float>(rows * d), {rows, d}}; }
  AnyView<void, 2> matrix(int64_t rows, int64_t d, ElementType type) { return any<2>({rows, d}, type); }
  AnyView<void, 3> heads(int64_t rows, int64_t n, int64_t d, ElementType type) { return any<3>({rows, n, d}, type); }
  template <class T>
  View<T, 1> copy(const std::vector<T>& values) {
    T* to = take<T>(std::ssize(values));
    copy_to_device<T>(ctx_, {values.data(), {std::ssize(values)}}, {to, {std::ssize(values)}});
    ctx_.synchronize();
    return {to, {std::ssize(values)}};
  }
  View<float, 1> filled(int64_t n, float value) { return copy(std::vector<float>(n, value)); }

 private:
  template <class T>
  static std::vector<T> random_values() {
    std::vector<T> values(1 << 20);
    uint32_t state = 12345;
    for (T& to : values) {
      state = state * 1664525U + 1013904223U;
      const float x = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
      if constexpr (std::is_same_v<T, Bf16>) {
        to.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      } else {
        to = x;
      }
    }
    return values;
  }
  template <int Rank>
  AnyView<void, Rank> any(const typename AnyView<void, Rank>::Extents& extents, ElementType type) {
    int64_t n = 1;
    for (const int64_t extent : extents) n *= extent;
    if (type == ElementType::bf16) return {numbers<Bf16>(n), extents};
    return {numbers<float>(n), extents};
  }
  template <class T>
  T* take(int64_t n) {
    const int64_t bytes = (n * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    taken_.push_back(ctx_.device() == Device::cpu ? std::aligned_alloc(256, bytes) : allocate_on_device(ctx_, bytes));
    if (taken_.back() == nullptr) throw Error(ErrorKind::memory, "not enough memory for the operands");
    return static_cast<T*>(taken_.back());
  }
  void give_back(void* memory) {
    if (ctx_.device() == Device::cpu) return std::free(memory);
    release_on_device(ctx_, memory);
  }

  Context& ctx_;
  std::vector<void*> taken_;
};

}  // namespace keel::bench
