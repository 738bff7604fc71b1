#include <algorithm>
#include <array>
#include <utility>

#include "keel/base/error.h"
#include "keel/checkpoint/safetensors.h"
#include "safetensors_header.h"

namespace keel {
namespace {

struct TypeRow {
  StoredType type;
  std::string_view name;
  int64_t bits;
};

constexpr std::array<TypeRow, 22> kTypes{{{StoredType::BOOL, "BOOL", 8},
                                          {StoredType::F4, "F4", 4},
                                          {StoredType::F6_E2M3, "F6_E2M3", 6},
                                          {StoredType::F6_E3M2, "F6_E3M2", 6},
                                          {StoredType::U8, "U8", 8},
                                          {StoredType::I8, "I8", 8},
                                          {StoredType::F8_E5M2, "F8_E5M2", 8},
                                          {StoredType::F8_E4M3, "F8_E4M3", 8},
                                          {StoredType::F8_E8M0, "F8_E8M0", 8},
                                          {StoredType::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8},
                                          {StoredType::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8},
                                          {StoredType::I16, "I16", 16},
                                          {StoredType::U16, "U16", 16},
                                          {StoredType::F16, "F16", 16},
                                          {StoredType::BF16, "BF16", 16},
                                          {StoredType::I32, "I32", 32},
                                          {StoredType::U32, "U32", 32},
                                          {StoredType::F32, "F32", 32},
                                          {StoredType::C64, "C64", 64},
                                          {StoredType::F64, "F64", 64},
                                          {StoredType::I64, "I64", 64},
                                          {StoredType::U64, "U64", 64}}};

const TypeRow& row_of(StoredType type) {
  const TypeRow& row = kTypes.at(static_cast<size_t>(type));
  if (row.type != type) throw Error(ErrorKind::internal, "the table of stored types is out of order");
  return row;
}

}  // namespace

std::string_view to_string(StoredType type) {
  return row_of(type).name;
}
int64_t bits(StoredType type) {
  return row_of(type).bits;
}

bool is_readable_float(StoredType type) {
  return type == StoredType::F32 || type == StoredType::F16 || type == StoredType::BF16;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < std::min(kShown, shape.size()); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() > kShown ? ", ...]" : "]");
}

namespace detail {

std::optional<StoredType> stored_type(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

}  // namespace detail
}  // namespace keel
