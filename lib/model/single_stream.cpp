#include "keel/base/error.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/memory/memory.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/seam/seam.h"
#include "keel/model/residual_stream.h"

namespace keel {
namespace {

void require_supported(const Wiring& wiring, int64_t l) {
  Wiring plain;
  plain.inner = wiring.inner;
  plain.outer = wiring.outer;
  plain.a = wiring.a;
  plain.b = wiring.b;
  if (wiring != plain || wiring.inner == NormKind::ln || wiring.outer == NormKind::ln) {
    throw Error(ErrorKind::internal, "a wiring that the single stream does not run", "sublayer " + std::to_string(l));
  }
}

class SingleStream final : public ResidualStream {
 public:
  SingleStream(Context& ctx, const ModelConfig& config, const std::vector<Sublayer>& sublayers,
               const SingleStreamPlan& plan, const Arena& arena)
      : sublayers_(sublayers),
        plan_(plan),
        arena_(arena),
        d_(config.hidden_size),
        eps_(static_cast<float>(config.rms_norm_eps)) {
    std::vector<float> scales;
    for (const Sublayer& sublayer : sublayers_) {
      scales.push_back(static_cast<float>(sublayer.wiring.a));
      scales.push_back(static_cast<float>(sublayer.wiring.b));
    }
    const int64_t size = static_cast<int64_t>(scales.size());
    copy_to_device(ctx, HostView<const float, 1>(scales.data(), {size}),
                   View<float, 1>(arena_.at(plan_.scales), {size}));
  }

  View<float, 2> embedding_output(int64_t N) override {
    N_ = N;
    return rows(plan_.x[0]);
  }

  void begin(Context& ctx, const ParameterBuffers& p) override {
    if (const View<const float, 1> gain = inner_gain(p, 0)) {
      rms_norm(ctx, rows(plan_.x[0]), gain, eps_, rows(plan_.u[0]), per_row(plan_.inner_r[0]));
    }
  }

  View<const float, 2> branch_input(int64_t i) const override {
    return has_inner_norm(i) ? rows(plan_.u[i]) : rows(plan_.x[i]);
  }

  View<float, 2> branch_output(int64_t i) override { return rows(plan_.F[i]); }

  void join(Context& ctx, const ParameterBuffers& p, int64_t i) override {
    SeamForward seam{.x = rows(plan_.x[i]), .F = rows(plan_.F[i]), .a = scale(i, 0), .b = scale(i, 1)};
    seam.outer_gain = outer_gain(p, i);
    seam.inner_gain = inner_gain(p, i + 1);
    seam.outer_eps = seam.inner_eps = eps_;
    seam.y = rows(plan_.x[i + 1]);
    if (seam.outer_gain) seam.outer_r = per_row(plan_.outer_r[i]);
    if (seam.inner_gain) {
      seam.u = rows(plan_.u[i + 1]);
      seam.inner_r = per_row(plan_.inner_r[i + 1]);
    }
    seam_forward(ctx, seam);
  }

  View<float, 2> branch_input_gradient(int64_t i) override {
    // Without a norm before the head its input is the state itself.
    return i == count() && !has_inner_norm(i) ? rows(plan_.state_gradient) : rows(plan_.branch_gradient);
  }

  View<const float, 2> join_backward(Context& ctx, const ParameterBuffers& p, int64_t i) override {
    const bool last = i + 1 == count();
    SeamBackward seam{.y = rows(plan_.x[i + 1]), .a = scale(i, 0), .b = scale(i, 1)};
    seam.outer_gain = outer_gain(p, i);
    seam.inner_gain = inner_gain(p, i + 1);
    seam.outer_eps = seam.inner_eps = eps_;
    if (seam.outer_gain) {
      seam.x = rows(plan_.x[i]);
      seam.F = rows(plan_.F[i]);
      seam.outer_r = per_row(plan_.outer_r[i]);
      seam.d_outer_gain = p.d_vector(p.layout->sublayers[sublayers_[i].index].outer_norm);
    }
    if (seam.inner_gain) {
      seam.inner_r = per_row(plan_.inner_r[i + 1]);
      seam.d_inner_gain = p.d_vector(inner_index(p, i + 1));
    }
    // After the last sublayer the head feeds either its norm or the state, not both.
    if (!last || !seam.inner_gain) seam.Ds = rows(plan_.state_gradient);
    if (!last || seam.inner_gain) seam.Du = rows(plan_.branch_gradient);
    seam.dx = rows(plan_.state_gradient);
    seam.dF = rows(plan_.branch_gradient);
    seam.partial = partial(2 * d_ + 2);
    seam_backward(ctx, seam);
    return rows(plan_.branch_gradient);
  }

  EmbeddingGradient begin_backward(Context& ctx, const ParameterBuffers& p) override {
    const View<float, 2> state = rows(plan_.state_gradient);
    const View<float, 2> branch = rows(plan_.branch_gradient);
    if (const View<const float, 1> gain = inner_gain(p, 0)) {
      rms_norm_backward(ctx, branch, rows(plan_.x[0]), gain, per_row(plan_.inner_r[0]), state, true,
                        p.d_vector(inner_index(p, 0)), partial(d_));
      return {.first = state, .second = {}};
    }
    return {.first = state, .second = branch};
  }

 private:
  int64_t count() const { return static_cast<int64_t>(sublayers_.size()); }
  bool has_inner_norm(int64_t i) const { return plan_.u[i].count > 0; }
  View<float, 2> rows(const Region<float>& region) const { return {arena_.at(region), {N_, d_}}; }
  View<float, 1> per_row(const Region<float>& region) const { return {arena_.at(region), {N_}}; }
  View<float, 2> partial(int64_t width) const { return {arena_.at(plan_.partial), {chunk_count(N_), width}}; }
  View<const float, 1> scale(int64_t i, int64_t which) const { return {arena_.at(plan_.scales) + 2 * i + which, {1}}; }
  int64_t inner_index(const ParameterBuffers& p, int64_t i) const {
    return i == count() ? p.layout->final_norm : p.layout->sublayers[sublayers_[i].index].inner_norm;
  }
  View<const float, 1> inner_gain(const ParameterBuffers& p, int64_t i) const { return p.vector(inner_index(p, i)); }
  View<const float, 1> outer_gain(const ParameterBuffers& p, int64_t i) const {
    return p.vector(p.layout->sublayers[sublayers_[i].index].outer_norm);
  }

  std::vector<Sublayer> sublayers_;
  SingleStreamPlan plan_;
  const Arena& arena_;
  int64_t d_, N_ = 0;
  float eps_;
};

}  // namespace

SingleStreamPlan plan_single_stream(const ModelConfig& config, const std::vector<Sublayer>& sublayers,
                                    int64_t max_tokens, bool training, ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t n = static_cast<int64_t>(sublayers.size());
  const int64_t elements = max_tokens * config.hidden_size;
  const auto has_inner = [&](int64_t i) {
    return i == n ? config.has_final_norm() : sublayers[i].wiring.inner != NormKind::none;
  };
  SingleStreamPlan plan;
  const Region<float> shared_F = arena.add<float>(workspace, elements);
  Region<float> shared_x, shared_u, shared_r;
  if (!training) {
    shared_x = arena.add<float>(activations, elements);
    shared_u = arena.add<float>(activations, elements);
    shared_r = arena.add<float>(activations, max_tokens);
  }
  const auto kept = [&](bool wanted, int64_t count, const Region<float>& shared) {
    if (!wanted) return Region<float>{};
    return training ? arena.add<float>(activations, count) : shared;
  };
  for (int64_t i = 0; i <= n; ++i) {
    if (i < n) require_supported(sublayers[i].wiring, sublayers[i].index);
    plan.x.push_back(kept(true, elements, shared_x));
    plan.u.push_back(kept(has_inner(i), elements, shared_u));
    plan.inner_r.push_back(kept(has_inner(i), max_tokens, shared_r));
    if (i == n) break;
    const bool outer = sublayers[i].wiring.outer != NormKind::none;
    plan.F.push_back(training && outer ? arena.add<float>(activations, elements) : shared_F);
    plan.outer_r.push_back(kept(outer, max_tokens, shared_r));
  }
  plan.scales = arena.add<float>(weights, 2 * n);
  if (training) {
    plan.state_gradient = arena.add<float>(workspace, elements);
    plan.branch_gradient = arena.add<float>(workspace, elements);
    plan.partial = arena.add<float>(workspace, chunk_count(max_tokens) * (2 * config.hidden_size + 2));
  }
  return plan;
}

std::unique_ptr<ResidualStream> make_single_stream(Context& ctx, const ModelConfig& config,
                                                   const std::vector<Sublayer>& sublayers, const SingleStreamPlan& plan,
                                                   const Arena& arena) {
  return std::make_unique<SingleStream>(ctx, config, sublayers, plan, arena);
}

}  // namespace keel
