#include "safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"

namespace keel::detail {
namespace {

/// Takes the parser's events one by one, so that a header of 100 MB never becomes a tree: the only shape it accepts is
///   {"__metadata__": {string: string, ...}, NAME: {"dtype": string, "shape": [n, ...], "data_offsets": [b, e]}, ...}
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_integer(int64_t value) override { return unexpected(fmt::format("the number {}", value)); }

  bool number_unsigned(uint64_t value) override {
    if (level_ != Level::numbers) return unexpected(fmt::format("the number {}", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(field_ == "shape" ? "size overflow" : "bad range", fmt::format("{} in {}", value, field_));
    }
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == Level::metadata) {
      if (!header_.metadata.emplace(field_, value).second) fail("duplicate", "metadata key '" + field_ + "'");
      return true;
    }
    if (level_ != Level::tensor || field_ != "dtype") return unexpected("the string '" + value + "'");
    const auto type = stored_type(value);
    if (!type) fail("unknown dtype", "'" + value + "'");
    tensor_.type = *type;
    return true;
  }

  bool start_object(size_t) override {
    switch (level_) {
      case Level::outside:
        level_ = Level::top;
        return true;
      case Level::top:
        level_ = in_metadata_ ? Level::metadata : Level::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    if (level_ == Level::top) {
      in_metadata_ = name == "__metadata__";
      if (in_metadata_ && std::exchange(had_metadata_, true)) fail("duplicate", "__metadata__ twice");
      tensor_ = {};
      tensor_.name = name;
      seen_ = 0;
      return true;
    }
    field_ = name;
    if (level_ != Level::tensor) return true;
    const unsigned bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0) fail("bad header", "unknown field '" + name + "'");
    if ((seen_ & bit) != 0) fail("duplicate", "field '" + name + "' twice");
    seen_ |= bit;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::tensor) {
      if (seen_ != 7) fail("bad header", "dtype, shape or data_offsets is missing");
      header_.tensors.push_back(std::move(tensor_));
    }
    level_ = level_ == Level::top ? Level::outside : Level::top;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::tensor || field_ == "dtype") return unexpected("a list");
    level_ = Level::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::tensor;
    if (field_ == "shape") {
      tensor_.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) fail("bad range", fmt::format("data_offsets of {} numbers", numbers_.size()));
    tensor_.begin = numbers_[0];
    tensor_.end = numbers_[1];
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(ErrorKind::format, fmt::format("the safetensors header is not valid JSON at byte {}", position), path_);
  }

 private:
  enum class Level { outside, top, metadata, tensor, numbers };

  [[noreturn]] void fail(const std::string& reason, const std::string& what) const {
    const std::string subject =
        level_ == Level::tensor || level_ == Level::numbers ? ", tensor '" + tensor_.name + "'" : "";
    throw Error(ErrorKind::format, reason + ": " + what + subject, path_);
  }
  bool unexpected(const std::string& what) const {
    if (level_ == Level::outside) fail("not an object", what);
    fail(level_ == Level::metadata ? "metadata is not text" : "bad header", what + " is out of place");
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  Level level_ = Level::outside;
  bool in_metadata_ = false, had_metadata_ = false;
  StoredTensor tensor_;
  std::string field_;
  unsigned seen_ = 0;
  std::vector<int64_t> numbers_;
};

[[noreturn]] void fail(const std::string& reason, const StoredTensor& tensor, const std::string& path) {
  throw Error(ErrorKind::format, fmt::format("{}, tensor '{}'", reason, tensor.name), path);
}

void check_tensor(StoredTensor& tensor, const std::string& path) {
  if (tensor.begin > tensor.end) fail(fmt::format("bad range: {} to {}", tensor.begin, tensor.end), tensor, path);
  const auto size = tensor_size(tensor.type, tensor.shape);
  if (!size) fail(fmt::format("size overflow: {} {}", to_string(tensor.type), shape_text(tensor.shape)), tensor, path);
  if (size->bytes != tensor.end - tensor.begin) {
    fail(fmt::format("size mismatch: {} bytes for {} {}, wanted {}", tensor.end - tensor.begin, to_string(tensor.type),
                     shape_text(tensor.shape), size->bytes),
         tensor, path);
  }
  tensor.elements = size->elements;
}

/// The ranges in order of their offsets must follow one another from 0 to the end of the data.
void check_cover(const std::vector<StoredTensor>& tensors, int64_t data_bytes, const std::string& path) {
  std::vector<const StoredTensor*> order(tensors.size());
  std::transform(tensors.begin(), tensors.end(), order.begin(), [](const StoredTensor& tensor) { return &tensor; });
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t end = 0;
  for (const StoredTensor* tensor : order) {
    if (tensor->begin < end) fail(fmt::format("overlap: starts at {}, before {}", tensor->begin, end), *tensor, path);
    if (tensor->begin > end) fail(fmt::format("hole: starts at {}, after {}", tensor->begin, end), *tensor, path);
    end = tensor->end;
  }
  if (end > data_bytes) {
    throw Error(ErrorKind::format, fmt::format("truncated: {} bytes of data, wanted {}", data_bytes, end), path);
  }
  if (end < data_bytes) {
    throw Error(ErrorKind::format, fmt::format("trailing bytes: {} bytes of data, wanted {}", data_bytes, end), path);
  }
}

}  // namespace

std::optional<TensorSize> tensor_size(StoredType type, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) return std::nullopt;
  }
  int64_t size_in_bits = 0;
  if (__builtin_mul_overflow(elements, bits(type), &size_in_bits) || size_in_bits % 8 != 0) return std::nullopt;
  return TensorSize{elements, size_in_bits / 8};
}

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& path) {
  SafetensorsHeader header;
  HeaderEvents events(header, path);
  if (json.empty() || json[0] != '{') throw Error(ErrorKind::format, "the safetensors header is not an object", path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors.end()) fail("duplicate", *twice, path);
  for (StoredTensor& tensor : tensors) check_tensor(tensor, path);
  check_cover(tensors, data_bytes, path);
  return header;
}

}  // namespace keel::detail
