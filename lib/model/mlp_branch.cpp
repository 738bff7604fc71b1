#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "keel/model/branch.h"

namespace keel {
namespace {

/// down(silu(gate u) * up u)
class MlpBranches final : public Branches {
 public:
  MlpBranches(const ModelConfig& config, const MlpPlan& plan, const Arena& arena)
      : plan_(plan), arena_(arena), F_(config.intermediate_size) {}

  void forward(Context& ctx, const ParameterBuffers& p, const FlatBatch&, const Sublayer& sublayer, int64_t slot,
               View<const float, 2> u, View<float, 2> F) override {
    const SublayerParameters& own = p.layout->sublayers[sublayer.index];
    const int64_t N = u.extent(0);
    const View<float, 2> gate_up = gate_up_of(slot, N);
    const View<float, 2> h(arena_.at(plan_.h), {N, F_});
    matmul(ctx, u, p.matrix(own.gate_proj, own.up_proj), gate_up, Transpose::b);
    swiglu(ctx, gate_up.columns(0, F_), gate_up.columns(F_, 2 * F_), h);
    matmul(ctx, h, p.matrix(own.down_proj), F, Transpose::b);
  }

  void backward(Context& ctx, const ParameterBuffers& p, const FlatBatch&, const Sublayer& sublayer, int64_t slot,
                bool accumulate, View<const float, 2> dF, View<const float, 2> u, View<float, 2> du) override {
    const SublayerParameters& own = p.layout->sublayers[sublayer.index];
    const int64_t N = u.extent(0);
    const View<float, 2> gate_up = gate_up_of(slot, N);
    const View<float, 2> gate = gate_up.columns(0, F_);
    const View<float, 2> up = gate_up.columns(F_, 2 * F_);
    const View<float, 2> h(arena_.at(plan_.h), {N, F_});
    const View<float, 2> d_h(arena_.at(plan_.d_h), {N, F_});
    swiglu(ctx, gate, up, h);
    matmul(ctx, dF, h, p.d_matrix(own.down_proj), Transpose::a, accumulate);
    matmul(ctx, dF, p.matrix(own.down_proj), d_h);
    swiglu_backward(ctx, d_h, gate, up, gate, up);  // the gradients take the activations' place
    matmul(ctx, gate_up, u, p.d_matrix(own.gate_proj, own.up_proj), Transpose::a, accumulate);
    matmul(ctx, gate_up, p.matrix(own.gate_proj, own.up_proj), du);
  }

 private:
  View<float, 2> gate_up_of(int64_t slot, int64_t N) const { return {arena_.at(plan_.gate_up[slot]), {N, 2 * F_}}; }

  MlpPlan plan_;
  const Arena& arena_;
  int64_t F_;
};

}  // namespace

MlpPlan plan_mlp(const ModelConfig& config, const std::vector<Sublayer>& sublayers, int64_t max_tokens, bool training,
                 ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t hidden = max_tokens * config.intermediate_size;
  MlpPlan plan;
  Region<float> gate_up;
  bool first = true;
  for (const Sublayer& sublayer : sublayers) {
    const bool used = sublayer.branch == BranchKind::mlp;
    if (used && (training || first)) {
      gate_up = arena.add<float>(activations, 2 * hidden);
      first = false;
    }
    plan.gate_up.push_back(used ? gate_up : Region<float>{});
  }
  plan.h = arena.add<float>(workspace, hidden);
  if (training) plan.d_h = arena.add<float>(workspace, hidden);
  return plan;
}

std::unique_ptr<Branches> make_mlp(const ModelConfig& config, const MlpPlan& plan, const Arena& arena) {
  return std::make_unique<MlpBranches>(config, plan, arena);
}

}  // namespace keel
