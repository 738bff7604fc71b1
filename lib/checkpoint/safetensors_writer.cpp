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

/// What is produced at a time.
struct Piece {
  const TensorSource* tensor;
  int64_t first, count;
};

class ProducedPieces {
 public:
  explicit ProducedPieces(const Plan& plan) {
    for (const TensorSource* tensor : plan.tensors) {
      if (!tensor->produce) continue;
      const int64_t elements = detail::tensor_size(tensor->type, tensor->shape)->elements;
      for (int64_t at = 0; at < elements; at += kMostProduced) {
        pieces_.push_back({tensor, at, std::min(kMostProduced, elements - at)});
      }
    }
    prepare(0);
  }

  /// The pieces of a tensor; tensors come in the order of the plan.
  void write(const TensorSource& tensor, detail::HashedFile& file) {
    for (; next_ < pieces_.size() && pieces_[next_].tensor == &tensor; ++next_) {
      prepare(next_ + 1);
      const Piece& piece = pieces_[next_];
      bytes_.resize(piece.count * bits(tensor.type) / 8);
      tensor.produce(piece.first, bytes_);
      file.write(bytes_);
    }
  }

 private:
  void prepare(size_t index) const {
    if (index >= pieces_.size()) return;
    const Piece& piece = pieces_[index];
    if (piece.tensor->prepare) piece.tensor->prepare(piece.first, piece.count);
  }

  std::vector<Piece> pieces_;
  size_t next_ = 0;
  std::vector<std::byte> bytes_;
};

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
  ProducedPieces pieces(plan);
  for (const TensorSource* tensor : plan.tensors) {
    pieces.write(*tensor, file);
    for (const auto& part : tensor->parts) file.write(part);
  }
  return file.finish();
}

}  // namespace keel
