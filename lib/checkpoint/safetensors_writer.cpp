#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hashed_file.h"
#include "keel/base/error.h"
#include "keel/checkpoint/safetensors.h"
#include "safetensors_header.h"

namespace keel {
namespace {

struct Plan {
  std::string start;                         // length and header
  std::vector<const TensorSource*> tensors;  // in the order of the file
  int64_t data_bytes = 0;
};

int64_t checked_bytes(const TensorSource& tensor) {
  const auto size = detail::tensor_size(tensor.type, tensor.shape);
  int64_t parts = 0;
  for (const auto& part : tensor.parts) parts += static_cast<int64_t>(part.size());
  if (size && tensor.produce) return size->bytes;
  if (!size || size->bytes != parts) {
    throw Error(ErrorKind::format, fmt::format("{} bytes for {} {}, tensor '{}'", parts, to_string(tensor.type),
                                               shape_text(tensor.shape), tensor.name));
  }
  return parts;
}

Plan make_plan(std::span<const TensorSource> tensors) {
  Plan plan;
  for (const TensorSource& tensor : tensors) plan.tensors.push_back(&tensor);
  std::sort(plan.tensors.begin(), plan.tensors.end(), [](const TensorSource* a, const TensorSource* b) {
    return a->type != b->type ? a->type > b->type : a->name < b->name;
  });
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorSource* tensor : plan.tensors) {
    if (!names.insert(tensor->name).second) {
      throw Error(ErrorKind::format, fmt::format("tensor '{}' cannot be stored twice", tensor->name));
    }
    const int64_t begin = plan.data_bytes;
    plan.data_bytes += checked_bytes(*tensor);
    header +=
        fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", nlohmann::json(tensor->name).dump(),
                    to_string(tensor->type), fmt::join(tensor->shape, ","), begin, plan.data_bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeader) {
    throw Error(ErrorKind::format,
                fmt::format("a safetensors header of {} bytes for {} tensors is above the limit of {}", header.size(),
                            tensors.size(), kMaxSafetensorsHeader));
  }
  for (int shift = 0; shift < 64; shift += 8) plan.start += static_cast<char>((header.size() >> shift) & 0xFF);
  plan.start += header;
  return plan;
}

void write_produced(const TensorSource& tensor, detail::HashedFile& file) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements
  const int64_t bytes = detail::tensor_size(tensor.type, tensor.shape)->bytes;
  const int64_t element = bits(tensor.type) / 8;
  std::vector<std::byte> piece(std::min(bytes, kPiece * element));
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(piece.size())) {
    const std::span<std::byte> out(piece.data(), std::min<int64_t>(bytes - at, static_cast<int64_t>(piece.size())));
    tensor.produce(at / element, out);
    file.write(out);
  }
}

}  // namespace

TensorSource float_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return {std::move(name), StoredType::F32, std::move(shape), {std::as_bytes(values)}};
}

int64_t safetensors_bytes(std::span<const TensorSource> tensors) {
  const Plan plan = make_plan(tensors);
  return static_cast<int64_t>(plan.start.size()) + plan.data_bytes;
}

FileRecord write_safetensors(const std::string& path, std::span<const TensorSource> tensors,
                             const std::function<void(int64_t)>& progress) {
  const Plan plan = make_plan(tensors);
  detail::HashedFile file(path, progress);
  file.write(plan.start);
  for (const TensorSource* tensor : plan.tensors) {
    if (tensor->produce) write_produced(*tensor, file);
    for (const auto& part : tensor->parts) file.write(part);
  }
  return file.finish();
}

}  // namespace keel
