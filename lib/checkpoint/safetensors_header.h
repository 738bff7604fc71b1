#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/checkpoint/safetensors.h"

namespace keel::detail {

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< by name
  std::map<std::string, std::string> metadata;
};

/// Parses a header's JSON and checks the tensors against `data_bytes`, the size of the data part. Throws Error(format)
/// with `path` as the place.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& path);

std::optional<StoredType> stored_type(std::string_view name);

/// Number of elements and of bytes of a shape; nullopt when either does not fit in 63 bits or the bits do not make
/// whole bytes.
struct TensorSize {
  int64_t elements, bytes;
};
std::optional<TensorSize> tensor_size(StoredType type, const std::vector<int64_t>& shape);

}  // namespace keel::detail
