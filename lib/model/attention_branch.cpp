#include <algorithm>
#include <cmath>

#include "keel/kernels/attention/attention.h"
#include "keel/kernels/bias/bias.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/kv_store/kv_store.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/rope/rope.h"
#include "keel/model/activation_slots.h"
#include "keel/model/branch.h"
#include "keel/model/kv_cache.h"

namespace keel {
namespace {

class AttentionBranches final : public Branches {
 public:
  AttentionBranches(Context& ctx, const ModelConfig& config, const AttentionPlan& plan, const DecoderOptions& options,
                    const Arena& arena)
      : config_(config),
        plan_(plan),
        options_(options),
        arena_(arena),
        heads_(config.num_attention_heads),
        kv_heads_(config.num_key_value_heads),
        head_dim_(config.head_dim),
        eps_(static_cast<float>(config.rms_norm_eps)),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)))),
        cos_(arena.at(plan.cos), {options.max_positions, config.head_dim / 2}),
        sin_(arena.at(plan.sin), {options.max_positions, config.head_dim / 2}) {
    const std::vector<double> frequencies = rope_frequencies(config);
    rope_table(ctx, {frequencies.data(), {config.head_dim / 2}}, cos_, sin_);
  }

  bool mixes_rows() const override { return true; }

  void forward_in(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> u) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = own_parameters(call);
    const int64_t N = u.extent(0);
    const AnyView<void, 2> qkv = slice(qkv_of(call.slot, N), rows);
    const AnyView<void, 2> inputs = slice(attention_inputs(call.slot, N), rows);
    linear(ctx, slice(u, rows), p.weight(own.q_proj, own.v_proj), qkv, N, p.vector(own.q_bias, own.v_bias));
    for (const HeadNorm& norm : norms_of(own, call.sublayer.wiring.qkv)) {
      rms_norm(ctx, rows_of(qkv, norm), p.vector(norm.gain), eps_, rows_of(inputs, norm),
               slice(inverse_rms(call.slot, N, norm), rows));
    }
    if (has_own_inputs(call.slot)) keep(ctx, arena_, plan_.qkv[call.slot], qkv_of(call.slot, N), rows);
    rope(ctx, call.batch.positions.slice(rows.begin, rows.end), cos_, sin_, heads_of(inputs, 0, heads_ + kv_heads_));
    keep(ctx, arena_, has_own_inputs(call.slot) ? plan_.normed[call.slot] : plan_.qkv[call.slot],
         attention_inputs(call.slot, N), rows);
  }

  void mix(Context& ctx, const BranchCall& call, Rows rows) override {
    const int64_t N = call.batch.tokens.extent(0), slot = call.slot;
    const AnyView<void, 2> inputs = attention_inputs(slot, N);
    attention(ctx, q_of(inputs), keys_values(ctx, call.batch, slot, k_of(inputs), values_of(call, N)),
              sequences_of(call.batch, rows), scale_, window(call.sublayer), heads_of(out_of(slot, N), 0, heads_),
              lse(slot, N));
  }

  void forward_out(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> u,
                   AnyView<void, 2> F) override {
    const SublayerParameters& own = own_parameters(call);
    const int64_t N = u.extent(0);
    const AnyView<void, 2> out = out_of(call.slot, N);
    keep(ctx, arena_, plan_.out[call.slot], out, rows);
    if (!F) return;
    const ParameterBuffers& p = call.parameters;
    linear(ctx, slice(out, rows), p.weight(own.o_proj), slice(F, rows), N, p.vector(own.o_bias));
  }

  void backward_out(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> dF) override {
    const int64_t o_proj = own_parameters(call).o_proj, N = dF.extent(0), slot = call.slot;
    recall(ctx, arena_, plan_.out[slot], out_of(slot, N), rows);
    recall(ctx, arena_, plan_.qkv[slot], qkv_of(slot, N), rows);
    if (has_own_inputs(slot)) recall(ctx, arena_, plan_.normed[slot], attention_inputs(slot, N), rows);
    matmul(ctx, slice(dF, rows), call.parameters.matrix(o_proj), slice(d_out_of(N), rows));
    if (call.block_sums == nullptr) return;
    const BlockSums& sums = *call.block_sums;
    sums.add(ctx, sums.o, call.parameters.d_matrix(o_proj), rows, slice(dF, rows), slice(out_of(slot, N), rows));
  }

  void mix_backward(Context& ctx, const BranchCall& call, Rows rows) override {
    const int64_t N = call.batch.tokens.extent(0), slot = call.slot;
    const AnyView<void, 2> inputs = attention_inputs(slot, N), d_qkv = d_qkv_of(N);
    attention_backward(ctx, heads_of(d_out_of(N), 0, heads_), q_of(inputs), k_of(inputs), values_of(call, N),
                       heads_of(out_of(slot, N), 0, heads_), lse(slot, N), sequences_of(call.batch, rows), scale_,
                       window(call.sublayer), q_of(d_qkv), k_of(d_qkv), v_of(d_qkv),
                       {arena_.at(plan_.delta), {heads_, N}});
  }

  void backward_in(Context& ctx, const BranchCall& call, Rows rows, AnyView<const void, 2> dF, AnyView<const void, 2> u,
                   AnyView<void, 2> du) override {
    const SublayerParameters& own = own_parameters(call);
    const int64_t N = dF.extent(0);
    const AnyView<void, 2> d_qkv = slice(d_qkv_of(N), rows);
    rope(ctx, call.batch.positions.slice(rows.begin, rows.end), cos_, sin_, heads_of(d_qkv, 0, heads_ + kv_heads_),
         RopeDirection::backward);
    for (const HeadNorm& norm : norms_of(own, call.sublayer.wiring.qkv)) {
      norm_backward(ctx, call, norm, N, rows, RowSums::of_chunks);
    }
    matmul(ctx, d_qkv, call.parameters.matrix(own.q_proj, own.v_proj), slice(du, rows));
    if (call.block_sums == nullptr) return;
    const BlockSums& sums = *call.block_sums;
    sums.add(ctx, sums.qkv, call.parameters.d_matrix(own.q_proj, own.v_proj), rows, d_qkv, slice(u, rows));
  }

  void add_mix_gradients(Context& ctx, const BranchCall& call, bool accumulate, AnyView<const void, 2> dF) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = own_parameters(call);
    const int64_t N = dF.extent(0);
    const View<float, 2> d_o = p.d_matrix(own.o_proj);
    if (call.block_sums != nullptr) {
      call.block_sums->add_up(ctx, call.block_sums->o, d_o, accumulate);
    } else {
      matmul(ctx, dF, out_of(call.slot, N), d_o, Transpose::a, accumulate);
    }
    if (own.o_bias < 0) return;
    add_bias_backward(ctx, dF, p.d_vector(own.o_bias), partial(plan_.o_bias_partial, N, dF.extent(1)));
  }

  void add_gradients(Context& ctx, const BranchCall& call, bool accumulate, AnyView<const void, 2>,
                     AnyView<const void, 2> u) override {
    const ParameterBuffers& p = call.parameters;
    const SublayerParameters& own = own_parameters(call);
    const int64_t N = u.extent(0);
    const View<float, 2> d_in = p.d_matrix(own.q_proj, own.v_proj);
    if (call.block_sums != nullptr) {
      call.block_sums->add_up(ctx, call.block_sums->qkv, d_in, accumulate);
    } else {
      matmul(ctx, d_qkv_of(N), u, d_in, Transpose::a, accumulate);
    }
    for (const HeadNorm& norm : norms_of(own, call.sublayer.wiring.qkv)) {
      norm_backward(ctx, call, norm, N, {0, N}, RowSums::add_up);
    }
    if (own.q_bias >= 0) {
      add_bias_backward(ctx, d_qkv_of(N), p.d_vector(own.q_bias, own.v_bias),
                        partial(plan_.qkv_bias_partial, N, qkv_size()));
    }
  }

 private:
  static const SublayerParameters& own_parameters(const BranchCall& call) {
    return call.parameters.layout->sublayers[call.sublayer.index];
  }
  int64_t qkv_size() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  int64_t window(const Sublayer& sublayer) const { return config_.window(sublayer.index / 2); }

  /// Heads [first, first + count) of a [N, heads * head_dim] matrix.
  AnyView<void, 3> heads_of(AnyView<void, 2> rows, int64_t first, int64_t count) const {
    return rows.reshaped<3>(first * head_dim_, {rows.extent(0), count, head_dim_}, {rows.stride(0), head_dim_, 1});
  }
  AnyView<void, 3> q_of(AnyView<void, 2> qkv) const { return heads_of(qkv, 0, heads_); }
  AnyView<void, 3> k_of(AnyView<void, 2> qkv) const { return heads_of(qkv, heads_, kv_heads_); }
  AnyView<void, 3> v_of(AnyView<void, 2> qkv) const { return heads_of(qkv, heads_ + kv_heads_, kv_heads_); }

  AnyView<void, 2> matrix(const Region<void>& region, int64_t N, int64_t columns) const {
    return arena_.view<2>(region, {N, columns});
  }
  AnyView<void, 2> qkv_of(int64_t slot, int64_t N) const { return matrix(plan_.qkv[slot].values, N, qkv_size()); }
  AnyView<void, 2> out_of(int64_t slot, int64_t N) const {
    return matrix(plan_.out[slot].values, N, heads_ * head_dim_);
  }
  AnyView<void, 2> d_qkv_of(int64_t N) const { return matrix(plan_.d_qkv, N, qkv_size()); }
  AnyView<void, 2> d_out_of(int64_t N) const { return matrix(plan_.d_out, N, heads_ * head_dim_); }
  AnyView<void, 3> values_of(const BranchCall& call, int64_t N) const {
    return v_of(own_parameters(call).v_norm >= 0 ? attention_inputs(call.slot, N) : qkv_of(call.slot, N));
  }
  /// What attention reads: a buffer of its own where the backward pass needs the projections too.
  bool has_own_inputs(int64_t slot) const { return plan_.normed[slot].values.count > 0; }
  AnyView<void, 2> attention_inputs(int64_t slot, int64_t N) const {
    if (!has_own_inputs(slot)) return qkv_of(slot, N);
    return matrix(plan_.normed[slot].values, N, plan_.normed_columns);
  }

  /// A norm of columns [begin, begin + size) of the projections, in rows of `width`.
  struct HeadNorm {
    int64_t gain, begin, size, width;
    Region<float> partial;
    int64_t rows() const { return size / width; }
  };
  std::vector<HeadNorm> norms_of(const SublayerParameters& own, QkvNorm kind) const {
    std::vector<HeadNorm> norms;
    const auto add = [&](int64_t gain, int64_t first_head, int64_t heads, const Region<float>& partial) {
      if (gain < 0) return;
      const int64_t size = heads * head_dim_;
      norms.push_back({gain, first_head * head_dim_, size, kind == QkvNorm::qk_full ? size : head_dim_, partial});
    };
    add(own.q_norm, 0, heads_, plan_.q_norm_partial);
    add(own.k_norm, heads_, kv_heads_, plan_.k_norm_partial);
    add(own.v_norm, heads_ + kv_heads_, kv_heads_, plan_.v_norm_partial);
    return norms;
  }
  AnyView<void, 3> rows_of(AnyView<void, 2> matrix, const HeadNorm& norm) const {
    return matrix.reshaped<3>(norm.begin, {matrix.extent(0), norm.rows(), norm.width},
                              {matrix.stride(0), norm.width, 1});
  }
  View<float, 2> inverse_rms(int64_t slot, int64_t N, const HeadNorm& norm) const {
    return {arena_.at(plan_.inverse_rms[slot]) + N * norm.begin / head_dim_, {N, norm.rows()}};
  }
  void norm_backward(Context& ctx, const BranchCall& call, const HeadNorm& norm, int64_t N, Rows rows,
                     RowSums sums) const {
    const ParameterBuffers& p = call.parameters;
    const AnyView<void, 3> d = slice(rows_of(d_qkv_of(N), norm), rows);
    const View<float, 2> all = partial(norm.partial, N * norm.rows(), norm.width);
    const int64_t first = rows.begin * norm.rows() / kReductionRows;
    rms_norm_backward(ctx, d, slice(rows_of(qkv_of(call.slot, N), norm), rows), p.vector(norm.gain),
                      slice(inverse_rms(call.slot, N, norm), rows), d, p.d_vector(norm.gain),
                      all.slice(first, first + chunk_count(rows.count() * norm.rows())), sums);
  }
  View<float, 2> lse(int64_t slot, int64_t N) const { return {arena_.at(plan_.lse[slot]), {heads_, N}}; }
  View<float, 2> partial(const Region<float>& region, int64_t rows, int64_t width) const {
    return {arena_.at(region), {chunk_count(rows), width}};
  }

  /// The batch's own keys and values, or with a cache all of their sequences', these added to it first.
  KeysValues keys_values(Context& ctx, const FlatBatch& batch, int64_t slot, AnyView<void, 3> k,
                         AnyView<void, 3> v) const {
    if (!batch.page_table) return {.keys = k, .values = v, .page_table = {}, .kv_lengths = {}};
    const int64_t rows = options_.cache_pages * options_.page_size;
    const AnyView<void, 3> keys = arena_.view<3>(plan_.cache_keys[slot], {rows, kv_heads_, head_dim_});
    const AnyView<void, 3> values = arena_.view<3>(plan_.cache_values[slot], {rows, kv_heads_, head_dim_});
    kv_store(ctx, k, batch.cache_rows, keys);
    kv_store(ctx, v, batch.cache_rows, values);
    return {.keys = keys,
            .values = values,
            .page_table = batch.page_table,
            .kv_lengths = batch.kv_lengths,
            .page_size = options_.page_size};
  }

  ModelConfig config_;
  AttentionPlan plan_;
  DecoderOptions options_;
  const Arena& arena_;
  int64_t heads_, kv_heads_, head_dim_;
  float eps_, scale_;
  View<float, 2> cos_, sin_;
};

bool has_norm(const Sublayer& sublayer) {
  return sublayer.branch == BranchKind::attention && sublayer.wiring.qkv != QkvNorm::none;
}

/// Scratch of the sums over rows: norms of queries, keys and values, biases.
void plan_partial_sums(const ModelConfig& c, const std::vector<Sublayer>& sublayers, int64_t max_tokens,
                       AttentionPlan& plan, ArenaPlan& arena) {
  const auto add = [&](int64_t rows, int64_t width) {
    expect_row_sums(arena.beside(), rows, width);
    return arena.add<float>(MemoryKind::workspace, chunk_count(rows) * width);
  };
  const auto of_heads = [&](int64_t heads) {
    const int64_t size =
        std::max(chunk_count(max_tokens * heads) * c.head_dim, chunk_count(max_tokens) * heads * c.head_dim);
    return arena.add<float>(MemoryKind::workspace, size);
  };
  if (std::any_of(sublayers.begin(), sublayers.end(), has_norm)) {
    plan.q_norm_partial = of_heads(c.num_attention_heads);
    plan.k_norm_partial = of_heads(c.num_key_value_heads);
    plan.v_norm_partial = of_heads(c.num_key_value_heads);
  }
  for (const Sublayer& sublayer : sublayers) {  // the queries' are the most
    if (!has_norm(sublayer)) continue;
    const bool of_heads = sublayer.wiring.qkv != QkvNorm::qk_full;
    expect_row_sums(arena.beside(), max_tokens * (of_heads ? c.num_attention_heads : 1),
                    of_heads ? c.head_dim : c.query_size());
  }
  if (c.has_qkv_bias()) plan.qkv_bias_partial = add(max_tokens, c.query_size() + 2 * c.key_value_size());
  if (c.attention_bias) plan.o_bias_partial = add(max_tokens, c.hidden_size);
}

}  // namespace

AttentionPlan plan_attention(const ModelConfig& config, const std::vector<Sublayer>& sublayers,
                             const DecoderOptions& options, ArenaPlan& arena) {
  using enum MemoryKind;
  const int64_t N = options.max_tokens, kv = config.key_value_size();
  const int64_t projections = config.query_size() + 2 * kv;
  const int64_t cache = options.cache_pages > 0 ? cache_rows(options.cache_pages, options.page_size) * kv : 0;
  AttentionPlan plan;
  if (config.has_qkv_bias()) expect_bias(arena.beside(), options.compute, projections);
  if (config.attention_bias) expect_bias(arena.beside(), options.compute, config.hidden_size);
  plan.normed_columns = config.query_size() + kv;
  for (const Sublayer& sublayer : sublayers) {
    if (sublayer.wiring.qkv == QkvNorm::qkv_head) plan.normed_columns = projections;
  }
  KeptSlots qkv(arena, options, N * projections), normed(arena, options, N * plan.normed_columns),
      out(arena, options, N * config.query_size());
  ActivationSlots<float> inverse_rms(arena, N * (config.num_attention_heads + 2 * config.num_key_value_heads)),
      lse(arena, N * config.num_attention_heads);
  for (int64_t i = 0; i < std::ssize(sublayers); ++i) {
    const bool used = sublayers[i].branch == BranchKind::attention, norm = has_norm(sublayers[i]);
    const int64_t slot = options.slot(i, std::ssize(sublayers));
    plan.qkv.push_back(qkv.at_if(used, slot));
    plan.normed.push_back(normed.at_if(norm && options.training, slot));
    plan.inverse_rms.push_back(inverse_rms.at_if(norm, slot));
    plan.out.push_back(out.at_if(used, slot));
    plan.lse.push_back(lse.at_if(used, slot));
    const int64_t cached = used ? cache : 0;
    plan.cache_keys.push_back(arena.add(activations, cached, options.compute));
    plan.cache_values.push_back(arena.add(activations, cached, options.compute));
  }
  plan.cos = arena.add<float>(workspace, options.max_positions * (config.head_dim / 2));
  plan.sin = arena.add<float>(workspace, options.max_positions * (config.head_dim / 2));
  if (options.training) {
    plan.d_qkv = arena.add(workspace, N * projections, options.compute);
    plan.d_out = arena.add(workspace, N * config.query_size(), options.compute);
    plan.delta = arena.add<float>(workspace, N * config.num_attention_heads);
    plan_partial_sums(config, sublayers, N, plan, arena);
  }
  expect_rope_table(arena.beside(), config.head_dim / 2);
  expect_attention(arena.beside(), {.tokens = N,
                                    .sequences = options.sequences(),
                                    .heads = config.num_attention_heads,
                                    .kv_heads = config.num_key_value_heads,
                                    .head_dim = config.head_dim,
                                    .most_keys = cache > 0 ? options.pages_of_sequence() * options.page_size : 0,
                                    .type = options.compute});
  return plan;
}

std::unique_ptr<Branches> make_attention(Context& ctx, const ModelConfig& config, const AttentionPlan& plan,
                                         const DecoderOptions& options, const Arena& arena) {
  return std::make_unique<AttentionBranches>(ctx, config, plan, options, arena);
}

}  // namespace keel
