#include "keel/inference/packed_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "keel/checkpoint/float16.h"
#include "keel/checkpoint/q8_0.h"
#include "keel/kernels/common/parallel.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

constexpr std::array<std::pair<WeightType, const char*>, 3> kNames{
    {{WeightType::fp32, "fp32"}, {WeightType::bf16, "bf16"}, {WeightType::q8_0, "q8_0"}}};

constexpr int64_t kAlignment = 64;  // bytes

int64_t aligned(int64_t at, int64_t unit) {
  return (at + unit - 1) / unit * unit;
}

/// Where a matrix is being made.
struct Target {
  WeightType type;
  int64_t rows, columns;
  char* values;
  uint16_t* scales;

  WeightMatrix matrix() const { return {type, rows, columns, values, scales}; }

  void pack(int64_t row, std::span<const float> weights) const {
    char* to = values + row * columns * matrix().value_bytes();
    switch (type) {
      case WeightType::fp32:
        std::copy(weights.begin(), weights.end(), reinterpret_cast<float*>(to));
        return;
      case WeightType::bf16:
        std::transform(weights.begin(), weights.end(), reinterpret_cast<uint16_t*>(to), narrow_bf16);
        return;
      case WeightType::q8_0:
        const auto blocks = static_cast<size_t>(scales_of_row(columns));
        quantise_q8_0(weights, {reinterpret_cast<int8_t*>(to), weights.size()}, {scales + row * blocks, blocks});
        return;
    }
  }
};

/// Memory of the host for what a GPU is given.
class Staging {
 public:
  explicit Staging(Context& ctx) : ctx_(ctx) {}

  /// Has make(T*) write `count` values of the host's memory, which come to `to`; on a CPU into `to` itself.
  template <class T, class Make>
  void fill(T* to, int64_t count, Make make) {
    if (ctx_.device() == Device::cpu || count == 0) return make(to);
    bytes_.resize(static_cast<size_t>(count) * sizeof(T) / sizeof(std::max_align_t) + 1);
    T* const host = reinterpret_cast<T*>(bytes_.data());
    make(host);
    copy_to_device(ctx_, HostView<const T, 1>(host, {count}), View<T, 1>(to, {count}));
    ctx_.synchronize();
  }

 private:
  Context& ctx_;
  std::vector<std::max_align_t> bytes_;
};

void read_matrix(Context& ctx, const TensorSet::Place& place, const Target& to) {
  constexpr int64_t kElements = 64 << 10;
  const int64_t rows = std::clamp<int64_t>(kElements / to.columns, 1, to.rows), parts = (to.rows + rows - 1) / rows;
  for_parts(ctx.team(), parts, [&](int64_t part, int) {
    const int64_t begin = part * rows, end = std::min(to.rows, begin + rows);
    std::vector<float> wide((end - begin) * to.columns);
    place.file->read(*place.tensor, begin * to.columns, wide);
    for (int64_t row = begin; row < end; ++row) {
      to.pack(row, std::span(wide).subspan((row - begin) * to.columns, to.columns));
    }
  });
}

}  // namespace

const char* to_string(WeightType type) {
  for (const auto& [named, name] : kNames) {
    if (named == type) return name;
  }
  return "?";
}

std::optional<WeightType> weight_type(std::string_view name) {
  for (const auto& [type, named] : kNames) {
    if (name == named) return type;
  }
  return std::nullopt;
}

PackedWeights::PackedWeights(ParameterLayout layout, WeightType type, ArenaPlan& plan)
    : layout_(std::move(layout)), type_(type) {
  int64_t vectors = 0, values = 0, scales = 0, end = 0;
  bool after_matrix = false;
  for (Parameter& p : layout_.parameters) {
    const bool follows = p.offset == end && p.is_matrix() == after_matrix;
    end = p.offset + p.size;
    after_matrix = p.is_matrix();
    Place place;
    if (p.is_matrix()) {
      const WeightMatrix shape(type, p.shape[0], p.shape[1], nullptr);
      if (!follows) values = aligned(values, kAlignment);
      place = {values, scales};
      values += p.size * shape.value_bytes();
      if (type == WeightType::q8_0) scales += p.shape[0] * scales_of_row(p.shape[1]);
    } else {
      if (!follows) vectors = aligned(vectors, kAlignment / int64_t{sizeof(float)});
      p.offset = vectors;
      vectors += p.size;
    }
    places_.push_back(place);
  }
  layout_.size = vectors;
  vectors_ = plan.add<float>(MemoryKind::weights, vectors);
  values_ = plan.add<char>(MemoryKind::weights, values);
  scales_ = plan.add<uint16_t>(MemoryKind::weights, scales);
}

void PackedWeights::read(Context& ctx, const TensorSet& tensors, const std::string& tied_head, const Arena& arena) {
  std::vector<TensorTarget> targets;
  for (const Parameter& p : layout_.parameters) targets.push_back({p.name, p.shape, {}});
  const std::vector<TensorSet::Place> places = tensors.match(targets, tied_head);
  matrices_.assign(layout_.parameters.size(), {});
  Staging staging(ctx), staging_of_scales(ctx);
  for (size_t i = 0; i < places.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (!p.is_matrix()) {
      staging.fill(arena.at(vectors_) + p.offset, p.size, [&](float* host) {
        places[i].file->read(*places[i].tensor, std::span<float>(host, static_cast<size_t>(p.size)));
      });
      continue;
    }
    const Target target{.type = type_,
                        .rows = p.shape[0],
                        .columns = p.shape[1],
                        .values = arena.at(values_) + places_[i].values,
                        .scales = type_ == WeightType::q8_0 ? arena.at(scales_) + places_[i].scales : nullptr};
    matrices_[i] = target.matrix();
    staging.fill(target.values, p.size * matrices_[i].value_bytes(), [&](char* values) {
      const int64_t scales = target.scales == nullptr ? 0 : p.shape[0] * scales_of_row(p.shape[1]);
      staging_of_scales.fill(target.scales, scales, [&](uint16_t* host) {
        Target on_host = target;
        on_host.values = values;
        on_host.scales = host;
        read_matrix(ctx, places[i], on_host);
      });
    });
    places[i].file->release(*places[i].tensor);
  }
}

ParameterBuffers PackedWeights::buffers(const Arena& arena) const {
  return {.layout = &layout_, .weights = {arena.at(vectors_), {layout_.size}}, .gradients = {}, .compute = matrices_};
}

}  // namespace keel
