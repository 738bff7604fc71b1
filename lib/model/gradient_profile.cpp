#include "keel/model/gradient_profile.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "keel/kernels/common/chunks.h"
#include "keel/kernels/memory/memory.h"
#include "keel/kernels/moments/moments.h"

namespace keel {
namespace {

/// Places of a sublayer's sums. The first three are written by one call of moments().
enum Sum : int64_t { kStream, kProduct, kBranch, kLogOuter, kLogA, kLogVector, kGradient, kSums };
/// moments() is given three places also where it writes the first only.
constexpr int64_t kMomentsPlaces = 3;

/// The tensor's name without layer, module and ".weight".
std::string short_name(const std::string& name) {
  const size_t layer = name.find(".layers.");
  if (layer == std::string::npos) return name;
  std::string kind = name.substr(name.find('.', layer + std::string(".layers.").size()) + 1);
  for (const std::string module : {"self_attn.", "mlp."}) {
    if (kind.starts_with(module)) kind.erase(0, module.size());
  }
  constexpr std::string_view kWeight = ".weight";
  if (kind.ends_with(kWeight)) kind.resize(kind.size() - kWeight.size());
  return kind;
}

}  // namespace

GradientProfilePlan plan_gradient_profile(const ModelConfig& config, const ParameterLayout& layout, int64_t max_tokens,
                                          ArenaPlan& arena) {
  int64_t largest = max_tokens * config.hidden_size;
  for (const Parameter& p : layout.parameters) largest = std::max(largest, p.size);
  GradientProfilePlan plan;
  const int64_t places = kSums * (config.sublayers() + 1) + std::ssize(layout.parameters) + kMomentsPlaces - 1;
  plan.sums = arena.add<double>(MemoryKind::workspace, places);
  plan.partial = arena.add<double>(MemoryKind::workspace, kMomentsPlaces * chunk_count(largest, kMomentsChunk));
  expect_log_sum(arena.beside(), std::max(max_tokens, config.hidden_size));
  return plan;
}

GradientProfiler::GradientProfiler(Context& ctx, const ModelConfig& config, const ParameterLayout& layout,
                                   const Decoder& decoder, const GradientProfilePlan& plan, const Arena& arena)
    : ctx_(ctx),
      decoder_(decoder),
      layout_(layout),
      arena_(arena),
      plan_(plan),
      width_(config.hidden_size),
      sublayers_(config.sublayers()) {}

View<double, 1> GradientProfiler::sums(int64_t sublayer, int64_t which, int64_t count) const {
  return {arena_.at(plan_.sums) + kSums * sublayer + which, {count}};
}

void GradientProfiler::add_moments(View<const float, 2> x, AnyView<const void, 2> y, View<double, 1> sums) {
  const int64_t chunks = chunk_count(x.extent(0) * x.extent(1), kMomentsChunk);
  moments(ctx_, x, y, sums, {arena_.at(plan_.partial), {chunks, kMomentsPlaces}});
}

void GradientProfiler::begin() {
  rows_ = 0;
  zero(ctx_, View<double, 1>(arena_.at(plan_.sums), {plan_.sums.count}));
}

DecoderObserver GradientProfiler::observer(const ParameterBuffers& p) {
  return {.branch =
              [this](int64_t l, View<const float, 2> x, AnyView<const void, 2> F) {
                if (l == 0) rows_ += x.extent(0);
                add_moments(x, F, sums(l, kStream, kMomentsPlaces));
              },
          .gradient =
              [this, &p](int64_t l, View<const float, 2> gradient) {
                add_moments(gradient, {}, sums(l, kGradient, kMomentsPlaces));
                if (l == sublayers_) {
                  add_moments(decoder_.stream(l), {}, sums(l, kStream, kMomentsPlaces));
                } else if (const View<const float, 1> r = decoder_.skip_factors(p, l).outer_r) {
                  log_sum(ctx_, r, sums(l, kLogOuter, 1));
                }
              }};
}

void GradientProfiler::end(const ParameterBuffers& p) {
  for (int64_t l = 0; l < sublayers_; ++l) {
    const SkipFactors factors = decoder_.skip_factors(p, l);
    log_sum(ctx_, factors.a, sums(l, kLogA, 1));
    if (factors.vector) log_sum(ctx_, factors.vector, sums(l, kLogVector, 1));
  }
  for (int64_t i = 0; i < std::ssize(layout_.parameters); ++i) {
    const Parameter& parameter = layout_.at(i);
    if (parameter.frozen) continue;
    add_moments({p.gradients.data() + parameter.offset, {1, parameter.size}}, {},
                sums(sublayers_ + 1, i, kMomentsPlaces));
  }
}

std::vector<WeightGradientNorm> GradientProfiler::weight_norms(const std::vector<double>& sums, int64_t first,
                                                               int64_t end, double weight_sum) const {
  std::vector<WeightGradientNorm> norms;
  for (int64_t i = first; i < end; ++i) {
    if (layout_.at(i).frozen) continue;
    norms.push_back({short_name(layout_.at(i).name), std::sqrt(sums[kSums * (sublayers_ + 1) + i]) / weight_sum});
  }
  return norms;
}

double GradientProfiler::log_skip_gain(const std::vector<double>& sums, int64_t l) const {
  const double* own = sums.data() + kSums * l;
  return own[kLogOuter] / static_cast<double>(rows_) + own[kLogA] + own[kLogVector] / static_cast<double>(width_);
}

SublayerProfile GradientProfiler::sublayer_profile(const std::vector<double>& sums, int64_t l,
                                                   double weight_sum) const {
  const double* own = sums.data() + kSums * l;
  const auto elements = static_cast<double>(rows_ * width_);
  SublayerProfile profile;
  profile.stream_gradient_norm = std::sqrt(own[kGradient]) / weight_sum;
  profile.stream_rms = std::sqrt(own[kStream] / elements);
  profile.branch_rms = std::sqrt(own[kBranch] / elements);
  profile.stream_branch_cosine = own[kProduct] / (std::sqrt(own[kStream]) * std::sqrt(own[kBranch]));
  profile.skip_gain = std::exp(log_skip_gain(sums, l));
  profile.weight_gradient_norms = weight_norms(sums, layout_.sublayers[l].first, layout_.sublayers[l].end, weight_sum);
  return profile;
}

GradientProfile GradientProfiler::fetch(double weight_sum) {
  std::vector<double> sums(plan_.sums.count);
  copy_to_host(ctx_, View<const double, 1>(arena_.at(plan_.sums), {plan_.sums.count}),
               HostView<double, 1>(sums.data(), {plan_.sums.count}));
  ctx_.synchronize();
  GradientProfile profile;
  for (int64_t l = 0; l < sublayers_; ++l) {
    profile.sublayers.push_back(sublayer_profile(sums, l, weight_sum));
    profile.log_skip_product += log_skip_gain(sums, l);
  }
  const double* last = sums.data() + kSums * sublayers_;
  profile.final_stream_gradient_norm = std::sqrt(last[kGradient]) / weight_sum;
  profile.final_stream_rms = std::sqrt(last[kStream] / static_cast<double>(rows_ * width_));
  const auto add = [&](int64_t index, const char* name) {
    if (index < 0) return;
    profile.weight_gradient_norms.push_back({name, weight_norms(sums, index, index + 1, weight_sum).front().norm});
  };
  add(layout_.embedding, "embedding");
  add(layout_.final_norm.gain, "final_norm");
  add(layout_.final_norm.bias, "final_norm.bias");
  if (layout_.head != layout_.embedding) add(layout_.head, "head");
  return profile;
}

}  // namespace keel
