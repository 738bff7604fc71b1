#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/mapped_file.h"
#include "keel/checkpoint/float16.h"
#include "keel/checkpoint/safetensors.h"
#include "safetensors_header.h"

namespace keel {

struct SafetensorsFile::Impl {
  std::string path;
  MappedFile file;
  int64_t data_offset = 0;
  detail::SafetensorsHeader header;
};

namespace {

constexpr int64_t kLengthBytes = 8;

/// Length of the header, checked against the file before anything is allocated for it.
int64_t header_length(const MappedFile& file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    throw Error(ErrorKind::format, fmt::format("not a safetensors file: {} bytes", file.size()), path);
  }
  uint64_t length;
  std::memcpy(&length, file.bytes().data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw Error(ErrorKind::format,
                fmt::format("header length {} is above the limit of {}", length, kMaxSafetensorsHeader), path,
                "not a safetensors file?");
  }
  if (static_cast<int64_t>(length) > file.size() - kLengthBytes) {
    throw Error(ErrorKind::format, fmt::format("header length {} in a file of {} bytes", length, file.size()), path);
  }
  return static_cast<int64_t>(length);
}

template <class Stored, class T, class Widen>
void widen_all(std::span<const std::byte> bytes, std::span<T> out, Widen widen) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = widen(value);
  }
}

template <class Stored, class T>
void widen_all(std::span<const std::byte> bytes, std::span<T> out) {
  widen_all<Stored>(bytes, out, [](Stored value) { return static_cast<T>(value); });
}

/// True if the type was one of the three that both readers know.
template <class T>
bool read_common(StoredType type, std::span<const std::byte> bytes, std::span<T> out) {
  switch (type) {
    case StoredType::F32:
      widen_all<float>(bytes, out);
      return true;
    case StoredType::F16:
      widen_all<uint16_t>(bytes, out, widen_f16);
      return true;
    case StoredType::BF16:
      widen_all<uint16_t>(bytes, out, widen_bf16);
      return true;
    default:
      return false;
  }
}

void check_room(const StoredTensor& tensor, size_t room) {
  if (static_cast<int64_t>(room) != tensor.elements) {
    throw Error(ErrorKind::internal,
                fmt::format("{} elements into {}, tensor '{}'", tensor.elements, room, tensor.name));
  }
}

[[noreturn]] void refuse_type(const StoredTensor& tensor, const char* wanted, const std::string& path) {
  throw Error(ErrorKind::format,
              fmt::format("tensor '{}' has dtype {}, wanted {}", tensor.name, to_string(tensor.type), wanted), path);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->file = MappedFile(path);
  const int64_t length = header_length(impl->file, path);
  impl->data_offset = kLengthBytes + length;
  const auto* text = reinterpret_cast<const char*>(impl->file.bytes().data()) + kLengthBytes;
  impl->header = detail::parse_safetensors_header({text, static_cast<size_t>(length)},
                                                  impl->file.size() - impl->data_offset, path);
  impl_ = std::move(impl);
}

const std::string& SafetensorsFile::path() const {
  return impl_->path;
}
int64_t SafetensorsFile::bytes() const {
  return impl_->file.size();
}
std::span<const StoredTensor> SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto& tensors = impl_->header.tensors;
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::span<const std::byte> SafetensorsFile::data(const StoredTensor& tensor) const {
  return impl_->file.bytes().subspan(impl_->data_offset + tensor.begin, tensor.end - tensor.begin);
}

void SafetensorsFile::release(const StoredTensor& tensor) const {
  impl_->file.release(data(tensor));
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<float> out) const {
  check_room(tensor, out.size());
  read(tensor, 0, out);
}

void SafetensorsFile::read(const StoredTensor& tensor, int64_t first, std::span<float> out) const {
  if (first < 0 || first + static_cast<int64_t>(out.size()) > tensor.elements) {
    throw Error(ErrorKind::internal, fmt::format("elements from {} on, {} of them, of the {} of tensor '{}'", first,
                                                 out.size(), tensor.elements, tensor.name));
  }
  const std::span<const std::byte> part = data(tensor).subspan(first * bits(tensor.type) / 8);
  if (!read_common(tensor.type, part, out)) refuse_type(tensor, "F32, F16 or BF16", impl_->path);
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<double> out) const {
  check_room(tensor, out.size());
  const auto bytes = data(tensor);
  if (read_common(tensor.type, bytes, out)) return;
  switch (tensor.type) {
    case StoredType::F64:
      return widen_all<double>(bytes, out);
    case StoredType::BOOL:
    case StoredType::U8:
      return widen_all<uint8_t>(bytes, out);
    case StoredType::I8:
      return widen_all<int8_t>(bytes, out);
    case StoredType::I16:
      return widen_all<int16_t>(bytes, out);
    case StoredType::U16:
      return widen_all<uint16_t>(bytes, out);
    case StoredType::I32:
      return widen_all<int32_t>(bytes, out);
    case StoredType::U32:
      return widen_all<uint32_t>(bytes, out);
    default:
      refuse_type(tensor, "a float of 16 to 64 bits or an integer of at most 32", impl_->path);
  }
}

}  // namespace keel
