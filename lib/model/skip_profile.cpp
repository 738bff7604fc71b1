#include "keel/model/skip_profile.h"

#include <cmath>
#include <vector>

#include "keel/base/error.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

template <class T>
std::vector<T> fetch(Context& ctx, View<const T, 2> values) {
  std::vector<T> host(values.size());
  copy_to_host(ctx, View<const T, 1>(values.data(), {values.size()}), HostView<T, 1>(host.data(), {values.size()}));
  ctx.synchronize();
  return host;
}

std::vector<float> fetch_floats(Context& ctx, const AnyView<const void, 2>& values) {
  if (values.type() == ElementType::fp32) return fetch(ctx, values.as<float>());
  std::vector<float> wide;
  for (const Bf16 value : fetch(ctx, values.as<Bf16>())) wide.push_back(widened(value));
  return wide;
}

/// Population variance of all elements.
double variance(Context& ctx, const AnyView<const void, 2>& values) {
  const std::vector<float> host = fetch_floats(ctx, values);
  double sum = 0, squares = 0;
  for (const float value : host) sum += value;
  const double mean = sum / static_cast<double>(host.size());
  for (const float value : host) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(host.size());
}

}  // namespace

bool profile_skip_scales(Context& ctx, Decoder& decoder, const ParameterBuffers& p, const FlatBatch& batch) {
  const auto vector_of = [&](int64_t l) {
    const Parameter& vector = p.layout->at(p.layout->sublayers[l].skip_scale);
    return View<float, 1>(p.weights.data() + vector.offset, {vector.size});
  };
  const auto set = [&](int64_t l, double omega) {
    const View<float, 1> vector = vector_of(l);
    const std::vector<float> values(vector.extent(0), static_cast<float>(omega));
    copy_to_device(ctx, HostView<const float, 1>(values.data(), {vector.extent(0)}), vector);
    ctx.synchronize();
  };
  double omega = 1;
  set(0, omega);
  const int64_t sublayers = std::ssize(p.layout->sublayers);
  return decoder.forward(p, batch, {.branch = [&](int64_t l, View<const float, 2> x, AnyView<const void, 2> F) {
                           omega = std::sqrt(omega * omega * variance(ctx, x) + variance(ctx, F));
                           if (l + 1 < sublayers) set(l + 1, omega);
                         }});
}

}  // namespace keel
