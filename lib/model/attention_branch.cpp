#include <cmath>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/rope/rope.h"
#include "keel/model/branch.h"

namespace keel {
namespace {

class AttentionBranches final : public Branches {
 public:
  AttentionBranches(Context& ctx, const ModelConfig& config, const AttentionPlan& plan, int64_t max_positions,
                    const Arena& arena)
      : plan_(plan),
        arena_(arena),
        heads_(config.num_attention_heads),
        kv_heads_(config.num_key_value_heads),
        head_dim_(config.head_dim),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)))),
        cos_(arena.at(plan.cos), {max_positions, config.head_dim / 2}),
        sin_(arena.at(plan.sin), {max_positions, config.head_dim / 2}) {
    rope_table(ctx, config.rope_theta, cos_, sin_);
  }

  void forward(Context& ctx, const ParameterBuffers& p, const FlatBatch& batch, const Sublayer& sublayer, int64_t slot,
               View<const float, 2> u, View<float, 2> F) override {
    const SublayerParameters& own = p.layout->sublayers[sublayer.index];
    const int64_t N = u.extent(0);
    const View<float, 2> qkv(arena_.at(plan_.qkv[slot]), {N, qkv_size()});
    const View<float, 2> out(arena_.at(plan_.out[slot]), {N, heads_ * head_dim_});
    matmul(ctx, u, p.matrix(own.q_proj, own.v_proj), qkv, Transpose::b);
    rope(ctx, batch.positions, cos_, sin_, heads_of(qkv, 0, heads_ + kv_heads_));
    attention(ctx, q_of(qkv), {.keys = k_of(qkv), .values = v_of(qkv)}, batch.cu_seqlens, scale_, 0,
              heads_of(out, 0, heads_), lse(slot, N));
    matmul(ctx, out, p.matrix(own.o_proj), F, Transpose::b);
  }

  void backward(Context& ctx, const ParameterBuffers& p, const FlatBatch& batch, const Sublayer& sublayer, int64_t slot,
                bool accumulate, View<const float, 2> dF, View<const float, 2> u, View<float, 2> du) override {
    const SublayerParameters& own = p.layout->sublayers[sublayer.index];
    const int64_t N = u.extent(0);
    const View<float, 2> qkv(arena_.at(plan_.qkv[slot]), {N, qkv_size()});
    const View<float, 2> out(arena_.at(plan_.out[slot]), {N, heads_ * head_dim_});
    const View<float, 2> d_out(arena_.at(plan_.d_out), {N, heads_ * head_dim_});
    const View<float, 2> d_qkv(arena_.at(plan_.d_qkv), {N, qkv_size()});
    const View<float, 2> delta(arena_.at(plan_.delta), {heads_, N});
    matmul(ctx, dF, out, p.d_matrix(own.o_proj), Transpose::a, accumulate);
    matmul(ctx, dF, p.matrix(own.o_proj), d_out);
    attention_backward(ctx, heads_of(d_out, 0, heads_), q_of(qkv), k_of(qkv), v_of(qkv), heads_of(out, 0, heads_),
                       lse(slot, N), batch.cu_seqlens, scale_, 0, q_of(d_qkv), k_of(d_qkv), v_of(d_qkv), delta);
    rope(ctx, batch.positions, cos_, sin_, heads_of(d_qkv, 0, heads_ + kv_heads_), RopeDirection::backward);
    matmul(ctx, d_qkv, u, p.d_matrix(own.q_proj, own.v_proj), Transpose::a, accumulate);
    matmul(ctx, d_qkv, p.matrix(own.q_proj, own.v_proj), du);
  }

 private:
  int64_t qkv_size() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  /// Heads [first, first + count) of a [N, heads * head_dim] matrix.
  View<float, 3> heads_of(View<float, 2> rows, int64_t first, int64_t count) const {
    return {rows.data() + first * head_dim_, {rows.extent(0), count, head_dim_}, {rows.stride(0), head_dim_, 1}};
  }
  View<float, 3> q_of(View<float, 2> qkv) const { return heads_of(qkv, 0, heads_); }
  View<float, 3> k_of(View<float, 2> qkv) const { return heads_of(qkv, heads_, kv_heads_); }
  View<float, 3> v_of(View<float, 2> qkv) const { return heads_of(qkv, heads_ + kv_heads_, kv_heads_); }
  View<float, 2> lse(int64_t slot, int64_t N) const { return {arena_.at(plan_.lse[slot]), {heads_, N}}; }

  AttentionPlan plan_;
  const Arena& arena_;
  int64_t heads_, kv_heads_, head_dim_;
  float scale_;
  View<float, 2> cos_, sin_;
};

}  // namespace

AttentionPlan plan_attention(const ModelConfig& config, const std::vector<Sublayer>& sublayers, int64_t max_tokens,
                             int64_t max_positions, bool training, ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t qkv = max_tokens * (config.query_size() + 2 * config.key_value_size());
  const int64_t out = max_tokens * config.query_size();
  const int64_t lse = max_tokens * config.num_attention_heads;
  AttentionPlan plan;
  Region<float> shared_qkv, shared_out, shared_lse;
  bool first = true;
  for (const Sublayer& sublayer : sublayers) {
    const bool used = sublayer.branch == BranchKind::attention;
    if (used && (training || first)) {
      shared_qkv = arena.add<float>(activations, qkv);
      shared_out = arena.add<float>(activations, out);
      shared_lse = arena.add<float>(activations, lse);
      first = false;
    }
    plan.qkv.push_back(used ? shared_qkv : Region<float>{});
    plan.out.push_back(used ? shared_out : Region<float>{});
    plan.lse.push_back(used ? shared_lse : Region<float>{});
  }
  plan.cos = arena.add<float>(workspace, max_positions * (config.head_dim / 2));
  plan.sin = arena.add<float>(workspace, max_positions * (config.head_dim / 2));
  if (training) {
    plan.d_qkv = arena.add<float>(workspace, qkv);
    plan.d_out = arena.add<float>(workspace, out);
    plan.delta = arena.add<float>(workspace, lse);
  }
  return plan;
}

std::unique_ptr<Branches> make_attention(Context& ctx, const ModelConfig& config, const AttentionPlan& plan,
                                         int64_t max_positions, const Arena& arena) {
  return std::make_unique<AttentionBranches>(ctx, config, plan, max_positions, arena);
}

}  // namespace keel
