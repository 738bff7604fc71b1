#include <algorithm>

#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/swiglu/swiglu.h"
#include "keel/model/activation_slots.h"
#include "keel/model/branch.h"

namespace keel {
namespace {

/// down(silu(gate u) * up u), with biases where the config has them.
class MlpBranches final : public Branches {
 public:
  MlpBranches(const ModelConfig& config, const MlpPlan& plan, const DecoderOptions& options, const Arena& arena)
      : plan_(plan), arena_(arena), F_(config.intermediate_size), compute_(options.compute) {}

  bool mixes_rows() const override { return false; }
  void forward_in(Context&, const BranchCall&, Rows, AnyView<const void, 2>) override {}
  void mix(Context&, const BranchCall&, Rows) override {}

  void forward_out(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> u,
                   AnyView<void, 2> F) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = p.layout->sublayers[call.sublayer.index];
    const Scratch scratch = scratch_of(ctx, rows);
    const AnyView<void, 2> gate = scratch.gate_up.columns(0, F_), up = scratch.gate_up.columns(F_, 2 * F_);
    linear(ctx, slice(u, rows), p.weight(own.gate_proj, own.up_proj), scratch.gate_up, u.extent(0),
           p.vector(own.gate_bias, own.up_bias));
    const AnyView<void, 2> h = F ? scratch.h : AnyView<void, 2>();
    const KeptRegion& region = plan_.gate_up[call.slot];
    const AnyView<void, 2> values = gate_up_of(call, u.extent(0));
    if (region.values.count > 0) {
      const AnyView<void, 2> kept =
          region.rounded.count > 0 ? rounded_rows(arena_, region, values, rows) : slice(values, rows);
      swiglu(ctx, gate, up, h, kept.columns(0, F_), kept.columns(F_, 2 * F_));
    } else {
      swiglu(ctx, gate, up, h);
    }
    if (!F) return;
    linear(ctx, scratch.h, p.weight(own.down_proj), slice(F, rows), u.extent(0), p.vector(own.down_bias));
  }

  void backward_out(Context&, const BranchCall&, Rows, AnyView<const void, 2>) override {}
  void mix_backward(Context&, const BranchCall&, Rows) override {}

  void backward_in(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> dF, AnyView<const void, 2> u,
                   AnyView<void, 2> du) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = p.layout->sublayers[call.sublayer.index];
    const AnyView<void, 2> values = gate_up_of(call, dF.extent(0));
    // Where weight gradients are products over all rows, their operands stay: that of gate and up in the place of these.
    const bool whole = call.block_sums == nullptr;
    const Scratch scratch =
        whole ? Scratch{slice(values, rows), slice(h_of(dF.extent(0)), rows)} : scratch_of(ctx, rows);
    const AnyView<void, 2>&d_gate_up = scratch.gate_up, &h = scratch.h;
    matmul(ctx, slice(dF, rows), p.matrix(own.down_proj), h);
    const KeptRegion& region = plan_.gate_up[call.slot];
    const bool is_rounded = region.rounded.count > 0;
    if (is_rounded) widen(ctx, rounded_rows(arena_, region, values, rows), d_gate_up.as<float>());
    const AnyView<void, 2> gate_up = is_rounded ? d_gate_up : slice(values, rows);
    swiglu_backward(ctx, h, gate_up.columns(0, F_), gate_up.columns(F_, 2 * F_), d_gate_up.columns(0, F_),
                    d_gate_up.columns(F_, 2 * F_), h);
    if (own.gate_bias >= 0) {
      add_bias_backward(ctx, d_gate_up, p.d_vector(own.gate_bias, own.up_bias), gate_bias_partial(rows),
                        RowSums::of_chunks);
    }
    matmul(ctx, d_gate_up, p.matrix(own.gate_proj, own.up_proj), slice(du, rows));
    if (whole) return;
    const BlockSums& sums = *call.block_sums;
    sums.add(ctx, sums.down, p.d_matrix(own.down_proj), rows, slice(dF, rows), h);
    sums.add(ctx, sums.gate_up, p.d_matrix(own.gate_proj, own.up_proj), rows, d_gate_up, slice(u, rows));
  }

  void add_mix_gradients(Context&, const BranchCall&, bool, AnyView<const void, 2>) override {}

  void add_gradients(Context& ctx, const BranchCall& call, bool accumulate, AnyView<const void, 2> dF,
                     AnyView<const void, 2> u) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = p.layout->sublayers[call.sublayer.index];
    const int64_t N = u.extent(0);
    const AnyView<void, 2> d_gate_up = gate_up_of(call, N);
    const View<float, 2> d_down = p.d_matrix(own.down_proj), d_in = p.d_matrix(own.gate_proj, own.up_proj);
    if (call.block_sums != nullptr) {
      const BlockSums& sums = *call.block_sums;
      sums.add_up(ctx, sums.down, d_down, accumulate);
      sums.add_up(ctx, sums.gate_up, d_in, accumulate);
    } else {
      matmul(ctx, dF, h_of(N), d_down, Transpose::a, accumulate);
      matmul(ctx, d_gate_up, u, d_in, Transpose::a, accumulate);
    }
    if (own.down_bias >= 0) {
      add_bias_backward(ctx, dF, p.d_vector(own.down_bias),
                        {arena_.at(plan_.down_bias_partial), {chunk_count(N), dF.extent(1)}});
    }
    if (own.gate_bias >= 0) {
      add_bias_backward(ctx, d_gate_up, p.d_vector(own.gate_bias, own.up_bias), gate_bias_partial({0, N}),
                        RowSums::add_up);
    }
  }

 private:
  /// Of a block of rows, in the cache of its thread.
  struct Scratch {
    AnyView<void, 2> gate_up, h;
  };
  Scratch scratch_of(Context& ctx, Rows rows) const {
    const AnyView<void, 2> all(ctx.scratch(mlp_scratch_bytes(F_, rows.count(), compute_)), compute_,
                               {3 * rows.count(), F_});
    return {all.reshaped<2>(0, {rows.count(), 2 * F_}, {2 * F_, 1}), all.slice(2 * rows.count(), 3 * rows.count())};
  }
  AnyView<void, 2> gate_up_of(const BranchCall& call, int64_t N) const {
    return arena_.view<2>(plan_.gate_up[call.slot].values, {N, 2 * F_});
  }
  AnyView<void, 2> h_of(int64_t N) const { return arena_.view<2>(plan_.h, {N, F_}); }
  View<float, 2> gate_bias_partial(Rows rows) const {
    float* first = arena_.at(plan_.gate_bias_partial) + rows.begin / kReductionRows * 2 * F_;
    return {first, {chunk_count(rows.count()), 2 * F_}};
  }

  MlpPlan plan_;
  const Arena& arena_;
  int64_t F_;
  ElementType compute_;
};

}  // namespace

int64_t mlp_scratch_bytes(int64_t intermediate_size, int64_t rows, ElementType compute) {
  return 3 * intermediate_size * rows * element_bytes(compute);
}

int64_t MlpPlan::whole_batch_bytes() const {
  int64_t elements = h.count;
  for (const KeptRegion& region : gate_up) {
    if (region.rounded.count == 0) continue;
    elements += region.values.count;  // which all share
    break;
  }
  return elements * element_bytes(h.type);
}

MlpPlan plan_mlp(const ModelConfig& config, const std::vector<Sublayer>& sublayers, const DecoderOptions& options,
                 ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t hidden = options.max_tokens * config.intermediate_size;
  MlpPlan plan;
  KeptSlots gate_up(arena, options, 2 * hidden);
  for (int64_t i = 0; i < std::ssize(sublayers); ++i) {
    const bool kept = options.training && sublayers[i].branch == BranchKind::mlp;
    plan.gate_up.push_back(gate_up.at_if(kept, options.slot(i, std::ssize(sublayers))));
  }
  if (options.training) plan.h = arena.add(workspace, hidden, options.compute);
  if (config.mlp_bias) {
    expect_bias(arena.beside(), options.compute, std::max(2 * config.intermediate_size, config.hidden_size));
  }
  if (options.training && config.mlp_bias) {
    const int64_t chunks = chunk_count(options.max_tokens);
    plan.gate_bias_partial = arena.add<float>(workspace, chunks * 2 * config.intermediate_size);
    plan.down_bias_partial = arena.add<float>(workspace, chunks * config.hidden_size);
    expect_row_sums(arena.beside(), options.max_tokens, std::max(2 * config.intermediate_size, config.hidden_size));
  }
  const auto is_mlp = [](const Sublayer& sublayer) { return sublayer.branch == BranchKind::mlp; };
  if (std::any_of(sublayers.begin(), sublayers.end(), is_mlp)) {
    arena.beside().expect(OperationMemory::scratch,
                          mlp_scratch_bytes(config.intermediate_size, options.max_tokens, options.compute));
  }
  return plan;
}

std::unique_ptr<Branches> make_mlp(const ModelConfig& config, const MlpPlan& plan, const DecoderOptions& options,
                                   const Arena& arena) {
  return std::make_unique<MlpBranches>(config, plan, options, arena);
}

}  // namespace keel
