#include <algorithm>

#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "keel/model/activation_slots.h"
#include "keel/model/branch.h"

namespace keel {
namespace {

/// down(silu(gate u) * up u), with biases where the config has them.
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
    if (own.gate_bias >= 0) add_bias(ctx, p.vector(own.gate_bias, own.up_bias), gate_up);
    swiglu(ctx, gate_up.columns(0, F_), gate_up.columns(F_, 2 * F_), h);
    matmul(ctx, h, p.matrix(own.down_proj), F, Transpose::b);
    if (own.down_bias >= 0) add_bias(ctx, p.vector(own.down_bias), F);
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
    if (own.down_bias >= 0) add_bias_backward(ctx, dF, p.d_vector(own.down_bias), partial(N, dF.extent(1)));
    matmul(ctx, dF, h, p.d_matrix(own.down_proj), Transpose::a, accumulate);
    matmul(ctx, dF, p.matrix(own.down_proj), d_h);
    swiglu_backward(ctx, d_h, gate, up, gate, up);  // the gradients take the activations' place
    if (own.gate_bias >= 0) add_bias_backward(ctx, gate_up, p.d_vector(own.gate_bias, own.up_bias), partial(N, 2 * F_));
    matmul(ctx, gate_up, u, p.d_matrix(own.gate_proj, own.up_proj), Transpose::a, accumulate);
    matmul(ctx, gate_up, p.matrix(own.gate_proj, own.up_proj), du);
  }

 private:
  View<float, 2> partial(int64_t N, int64_t width) const { return {arena_.at(plan_.partial), {chunk_count(N), width}}; }
  View<float, 2> gate_up_of(int64_t slot, int64_t N) const { return {arena_.at(plan_.gate_up[slot]), {N, 2 * F_}}; }

  MlpPlan plan_;
  const Arena& arena_;
  int64_t F_;
};

}  // namespace

MlpPlan plan_mlp(const ModelConfig& config, const std::vector<Sublayer>& sublayers, const DecoderOptions& options,
                 ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t hidden = options.max_tokens * config.intermediate_size;
  MlpPlan plan;
  ActivationSlots gate_up(arena, 2 * hidden);
  for (int64_t i = 0; i < std::ssize(sublayers); ++i) {
    plan.gate_up.push_back(gate_up.at_if(sublayers[i].branch == BranchKind::mlp, options.slot(i)));
  }
  plan.h = arena.add<float>(workspace, hidden);
  if (options.training) plan.d_h = arena.add<float>(workspace, hidden);
  if (options.training && config.mlp_bias) {
    const int64_t widest = std::max(2 * config.intermediate_size, config.hidden_size);
    plan.partial = arena.add<float>(workspace, chunk_count(options.max_tokens) * widest);
  }
  return plan;
}

std::unique_ptr<Branches> make_mlp(const ModelConfig& config, const MlpPlan& plan, const Arena& arena) {
  return std::make_unique<MlpBranches>(config, plan, arena);
}

}  // namespace keel
