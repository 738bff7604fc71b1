#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "keel/base/export.h"
#include "keel/kernels/common/any_view.h"
#include "keel/kernels/common/context.h"
#include "keel/kernels/common/operation_memory.h"

namespace keel {

/// What a byte of the arena is for, as --plan reports it.
enum class MemoryKind { weights, gradients, optimizer, activations, workspace };
inline constexpr int kMemoryKinds = 5;
KEEL_API const char* to_string(MemoryKind kind);

/// A place in the arena: `count` elements of T at a byte offset that is a multiple of 64. count 0 = not planned.
template <class T>
struct Region {
  int64_t offset = 0;
  int64_t count = 0;
};

/// Of elements whose type is known when it is planned.
template <>
struct Region<void> {
  int64_t offset = 0;
  int64_t count = 0;
  ElementType type = ElementType::fp32;
};

/// What a branch keeps of a pass for the one back: values of a sublayer's own, in the type that branches compute with; or
/// rounded ones, and then `values` are a buffer that all sublayers share, in which they are made and back in which they
/// are widened.
struct KeptRegion {
  Region<void> values;
  Region<Bf16> rounded;  ///< none where values are kept
};

/// Adds up what will be allocated, without allocating: the arena, and what operations keep beside it on a GPU.
class KEEL_API ArenaPlan {
 public:
  template <class T>
  Region<T> add(MemoryKind kind, int64_t count) {
    return {reserve(kind, count, sizeof(T)), count};
  }
  Region<void> add(MemoryKind kind, int64_t count, ElementType type) {
    return {reserve(kind, count, static_cast<size_t>(element_bytes(type))), count, type};
  }
  int64_t bytes(MemoryKind kind) const { return bytes_[static_cast<int>(kind)]; }
  int64_t total_bytes() const { return total_; }

  OperationMemory& beside() { return beside_; }
  const OperationMemory& beside() const { return beside_; }

 private:
  /// Throws Error(memory) if the sum leaves 63 bits.
  int64_t reserve(MemoryKind kind, int64_t count, int64_t element_bytes);

  std::array<int64_t, kMemoryKinds> bytes_{};
  int64_t total_ = 0;
  OperationMemory beside_;
};

/// The one allocation of a run, filled with zeros: the device's memory, on a CPU in huge pages where the system gives them.
/// Throws Error(memory) if the system refuses; its hint, what would need less, is the caller's.
class KEEL_API Arena {
 public:
  /// On the device of the context, which outlives it.
  Arena(Context& ctx, const ArenaPlan& plan, const std::string& hint = {});
  /// Memory of the host.
  explicit Arena(const ArenaPlan& plan, const std::string& hint = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* at(const Region<T>& region) const {
    return region.count == 0 ? nullptr : reinterpret_cast<T*>(base_ + region.offset);
  }
  /// The first elements of a region as a dense view.
  template <int Rank>
  AnyView<void, Rank> view(const Region<void>& region, const std::array<int64_t, Rank>& extents) const {
    return {at(region), region.type, extents};
  }
  int64_t bytes() const { return bytes_; }

 private:
  Context* device_ = nullptr;  ///< null: memory of the host
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace keel
