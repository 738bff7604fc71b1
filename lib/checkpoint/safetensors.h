#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"

namespace keel {

/// Element types of the safetensors format (formats.md 3), in the reference implementation's order.
enum class StoredType {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};

KEEL_API std::string_view to_string(StoredType type);
KEEL_API int64_t bits(StoredType type);
/// F32, F16, BF16: what widens to fp32 exactly.
KEEL_API bool is_readable_float(StoredType type);

/// "[2, 3]"
KEEL_API std::string shape_text(std::span<const int64_t> shape);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< bytes in the data part
  int64_t elements = 0;
};

/// Limit on the header, reader's and writer's alike.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

/// A memory-mapped, fully checked safetensors file; a handle, copies share the mapping.
/// Opening throws Error(io) for a missing file and Error(format) otherwise, with a distinct reason for each defect:
/// header length, not an object, JSON syntax, duplicate name, unknown dtype, bad range, size mismatch, size overflow,
/// overlap, hole, trailing bytes, truncated, metadata that is not string to string.
class KEEL_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const;
  int64_t bytes() const;
  /// By name, ascending.
  std::span<const StoredTensor> tensors() const;
  /// nullptr when there is no such tensor.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;
  std::span<const std::byte> data(const StoredTensor& tensor) const;

  /// Values as float, widened exactly: F32, F16, BF16. Other types throw Error(format) that names the tensor.
  void read(const StoredTensor& tensor, std::span<float> out) const;
  /// The same of the elements from `first` on, as many as fit `out`.
  void read(const StoredTensor& tensor, int64_t first, std::span<float> out) const;
  /// Values as double, widened exactly: F64, F32, F16, BF16 and the integers up to 32 bits.
  void read(const StoredTensor& tensor, std::span<double> out) const;
  /// For a tensor that has been read: its part of the file leaves this process's resident memory.
  void release(const StoredTensor& tensor) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Elements that TensorSource::produce is asked for at a time, at most.
inline constexpr int64_t kMostProduced = int64_t{1} << 20;

/// A tensor to write. Its bytes (row-major, little-endian) are the parts one after the other; nothing is copied. Or,
/// with `produce`, what that writes into `out` for the elements from `first` on, asked for in pieces in their order. What it
/// will be asked for next `prepare`, if given, is told before the piece before that is produced and written, so that it may
/// be fetched in that time.
struct TensorSource {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  std::vector<std::span<const std::byte>> parts = {};
  std::function<void(int64_t first, std::span<std::byte> out)> produce = {};
  std::function<void(int64_t first, int64_t count)> prepare = {};
};

/// An fp32 tensor in one piece.
KEEL_API TensorSource float_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values);

/// A file as manifests record it.
struct FileRecord {
  std::string name;  ///< relative to its folder
  int64_t bytes = 0;
  std::string xxh3;  ///< XXH3-64, 16 hex digits
};

/// Size of the file that write_safetensors would make.
KEEL_API int64_t safetensors_bytes(std::span<const TensorSource> tensors);

/// Writes the file and fsyncs it, streaming; the hash is computed on the way. Order as the reference writer's: later
/// StoredTypes first, then by name; header padded to 8; metadata {"format": "pt"}. `path` must not be a final name:
/// use it inside an AtomicDirectory. `progress`, when given, is called after each piece with the number of bytes
/// written since the last call. Throws Error(io) with the system's reason; a header above the limit, a name twice, or
/// parts that do not add up to the shape throw Error(format) before anything is written.
KEEL_API FileRecord write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                                      const std::function<void(int64_t)>& progress = {});

}  // namespace keel
