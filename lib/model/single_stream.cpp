#include <algorithm>

#include "keel/base/error.h"
#include "keel/kernels/column_scale/column_scale.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/exp_scale/exp_scale.h"
#include "keel/kernels/layer_norm/layer_norm.h"
#include "keel/kernels/memory/memory.h"
#include "keel/kernels/rms_norm/rms_norm.h"
#include "keel/kernels/seam/seam.h"
#include "keel/model/activation_slots.h"
#include "keel/model/residual_stream.h"

namespace keel {
namespace {

constexpr int64_t kScales = 2;  // constants of a sublayer: a, b

/// What stands at position i of a list of n sublayers: i < n is a sublayer, n is the head with its norm.
class Positions {
 public:
  Positions(const ModelConfig& config, const std::vector<Sublayer>& sublayers, ElementType compute)
      : sublayers_(sublayers), final_norm_(final_norm_kind(config)), rounds_(compute == ElementType::bf16) {}

  int64_t count() const { return static_cast<int64_t>(sublayers_.size()); }
  const Wiring& wiring(int64_t i) const { return sublayers_[i].wiring; }
  NormKind inner(int64_t i) const { return i == count() ? final_norm_ : wiring(i).inner; }
  double factor(int64_t i) const { return i == count() ? 1 : wiring(i).ns; }
  bool has_inner(int64_t i) const { return inner(i) != NormKind::none; }
  bool has_input_scale(int64_t i) const { return i < count() && wiring(i).in_scale != LearnedScale::none; }
  /// Whether what the branch reads is the state, but rounded.
  bool rounds_state(int64_t i) const { return rounds_ && !has_inner(i) && !has_input_scale(i); }
  /// Whether the seam before i makes the inner norm; otherwise it is an operation of its own.
  bool is_fused(int64_t i) const { return i > 0 && inner(i) == NormKind::rms && wiring(i - 1).outer != NormKind::ln; }
  bool has_skip_exponent(int64_t i) const { return wiring(i).skip_scale == LearnedScale::exponential; }
  bool has_skip_vector(int64_t i) const { return wiring(i).skip_scale == LearnedScale::vector; }
  bool has_branch_vector(int64_t i) const { return wiring(i).branch_scale == LearnedScale::vector; }
  bool has_branch_scalar(int64_t i) const { return wiring(i).branch_scale == LearnedScale::block; }
  /// Whether the seam after i reads f in its backward pass.
  bool seam_reads_branch(int64_t i) const {
    return wiring(i).outer != NormKind::none || wiring(i).branch_scale != LearnedScale::none;
  }
  bool keeps_branch(int64_t i) const { return wiring(i).keeps_branch(); }

 private:
  std::vector<Sublayer> sublayers_;
  NormKind final_norm_;
  bool rounds_;
};

class SingleStream final : public ResidualStream {
 public:
  SingleStream(Context& ctx, const ModelConfig& config, const std::vector<Sublayer>& sublayers,
               const SingleStreamPlan& plan, const Arena& arena)
      : sublayers_(sublayers),
        at_(config, sublayers, plan.compute),
        plan_(plan),
        arena_(arena),
        d_(config.hidden_size),
        eps_(static_cast<float>(config.rms_norm_eps)) {
    std::vector<float> scales;
    for (const Sublayer& sublayer : sublayers_) {
      scales.push_back(static_cast<float>(sublayer.wiring.a));
      scales.push_back(static_cast<float>(sublayer.wiring.b));
    }
    scales.insert(scales.end(), {1, 0, 0});
    const int64_t size = static_cast<int64_t>(scales.size());
    copy_to_device(ctx, HostView<const float, 1>(scales.data(), {size}),
                   View<float, 1>(arena_.at(plan_.scales), {size}));
  }

  View<float, 2> embedding_output(int64_t N) override {
    N_ = N;
    return matrix(plan_.x[0]);
  }

  void begin(Context& ctx, const ParameterBuffers& p) override {
    for (int64_t i = 0; i < at_.count(); ++i) {
      if (at_.has_skip_exponent(i)) {
        exp_scale(ctx, constant(kScales * i), p.vector(own(p, i).skip_exponent), learned_a(i));
      }
    }
  }

  void start(Context& ctx, const ParameterBuffers& p, Rows rows) override {
    if (at_.has_inner(0)) inner_norm(ctx, p, 0, rows);
    round_state(ctx, 0, rows);
    scale_input(ctx, p, 0, rows);
  }

  void restore(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) override {
    if (at_.inner(i) == NormKind::rms) {
      seam_inner_again(ctx, matrix(plan_.x[i], rows), inner_gain(p, i), static_cast<float>(at_.factor(i)),
                       per_row(plan_.inner_r[i], rows), matrix(plan_.normed[i], rows));
    } else if (at_.has_inner(i)) {
      inner_norm(ctx, p, i, rows);
    }
    round_state(ctx, i, rows);
    scale_input(ctx, p, i, rows);
  }

  AnyView<const void, 2> branch_input(int64_t i) const override {
    if (at_.has_input_scale(i)) return matrix(plan_.u[i]);
    if (at_.has_inner(i) || at_.rounds_state(i)) return matrix(plan_.normed[i]);
    return matrix(plan_.x[i]);
  }

  AnyView<void, 2> branch_output(int64_t i) override { return matrix(plan_.F[i].values); }
  bool keeps_branch_output(int64_t i) const override { return at_.keeps_branch(i); }
  void keep_branch_output(Context& ctx, int64_t i, Rows rows) override {
    keep(ctx, arena_, plan_.F[i], branch_output(i), rows);
  }

  void join(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) override {
    keep_branch_output(ctx, i, rows);
    const AnyView<const void, 2> F = matrix(plan_.F[i].values, rows);
    branch_norm(ctx, p, i, F, rows);
    SeamForward seam{.x = matrix(plan_.x[i], rows), .F = branch_term(i, F, rows), .a = a(i), .b = b(p, i)};
    const SublayerParameters& mine = own(p, i);
    if (at_.has_skip_vector(i)) seam.skip_scale = p.vector(mine.skip_scale);
    if (at_.has_branch_vector(i)) seam.branch_scale = p.vector(mine.branch_scale);
    seam.outer_gain = p.vector(mine.outer_norm.gain);
    seam.outer_bias = p.vector(mine.outer_norm.bias);
    seam.outer_eps = seam.inner_eps = eps_;
    seam.y = matrix(plan_.x[i + 1], rows);
    if (seam.outer_gain) seam.outer_r = per_row(plan_.outer_r[i], rows);
    if (seam.outer_bias) seam.outer_mean = per_row(plan_.outer_m[i], rows);
    if (at_.is_fused(i + 1)) {
      seam.inner_gain = inner_gain(p, i + 1);
      seam.inner_factor = static_cast<float>(at_.factor(i + 1));
      seam.u = matrix(plan_.normed[i + 1], rows);
      seam.inner_r = per_row(plan_.inner_r[i + 1], rows);
    } else if (at_.rounds_state(i + 1)) {
      seam.u = matrix(plan_.normed[i + 1], rows);
    }
    seam_forward(ctx, seam);
    if (at_.has_inner(i + 1) && !at_.is_fused(i + 1)) inner_norm(ctx, p, i + 1, rows);
    scale_input(ctx, p, i + 1, rows);
  }

  AnyView<void, 2> branch_input_gradient(int64_t i) override {
    if (is_head_on_state(i)) return matrix(plan_.state_gradient);
    return matrix(plan_.input_gradient);
  }

  void input_backward(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) override {
    input_backward(ctx, p, i, rows, RowSums::of_chunks);
  }
  void add_input_gradients(Context& ctx, const ParameterBuffers& p, int64_t i) override {
    input_backward(ctx, p, i, {0, N_}, RowSums::add_up);
  }

  void join_backward(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) override {
    const AnyView<const void, 2> F = recalled_branch(ctx, i, rows);
    if (at_.seam_reads_branch(i)) branch_norm(ctx, p, i, F, rows);
    seam_backward(ctx, backward_seam(p, i, F, rows, RowSums::of_chunks));
    branch_norm_backward(ctx, p, i, F, rows, RowSums::of_chunks);
  }

  void add_join_gradients(Context& ctx, const ParameterBuffers& p, int64_t i) override {
    const Rows all{0, N_};
    const AnyView<const void, 2> F = branch_output(i);  // not read
    if (at_.has_skip_exponent(i)) zero(ctx, d_learned_a());
    seam_backward(ctx, backward_seam(p, i, F, all, RowSums::add_up));
    branch_norm_backward(ctx, p, i, F, all, RowSums::add_up);
    if (at_.has_skip_exponent(i)) {
      exp_scale_backward(ctx, d_learned_a(), learned_a(i), p.d_vector(own(p, i).skip_exponent));
    }
  }

  AnyView<const void, 2> branch_output_gradient(int64_t i) const override {
    return matrix(plan_.branch_gradients[i % 2]);
  }

  EmbeddingGradient embedding_gradient() const override {
    if (at_.has_inner(0)) return {.first = matrix(plan_.state_gradient), .second = {}};
    return {.first = matrix(plan_.state_gradient), .second = matrix(plan_.input_gradient)};
  }

  View<const float, 2> state(int64_t i) const override { return matrix(plan_.x[i]); }

  View<const float, 2> state_gradient(Context& ctx, const ParameterBuffers& p, int64_t i) override {
    const bool is_last = i == at_.count();
    const Rows all{0, N_};
    const View<float, 2> total = matrix(plan_.observed_gradient);
    if (at_.is_fused(i)) {
      SeamBackward seam = identity_backward(p, i, all);
      if (!is_last) seam.Ds = d_state(all);
      seam.dx = total;
      seam.dF = matrix(plan_.passing);
      seam.d_inner_gain = {arena_.at(plan_.unused_gain), {d_}};
      seam_backward(ctx, seam);
      return total;
    }
    if (is_last && at_.rounds_state(i)) {
      widen(ctx, d_input(all).as<Bf16>(), total);
      return total;
    }
    if (is_last || at_.has_inner(i)) return d_state(all);
    seam_forward(ctx, {.x = d_state(all), .F = d_input(all), .a = one(), .b = one(), .y = total});
    return total;
  }

  SkipFactors skip_factors(const ParameterBuffers& p, int64_t i) const override {
    SkipFactors factors{.a = a(i)};
    if (at_.has_skip_vector(i)) factors.vector = p.vector(own(p, i).skip_scale);
    if (at_.wiring(i).outer != NormKind::none) factors.outer_r = per_row(plan_.outer_r[i], {0, N_});
    return factors;
  }

 private:
  View<float, 2> matrix(const Region<float>& region) const { return {arena_.at(region), {N_, d_}}; }
  AnyView<void, 2> matrix(const Region<void>& region) const { return arena_.view<2>(region, {N_, d_}); }
  View<float, 2> matrix(const Region<float>& region, Rows rows) const { return slice(matrix(region), rows); }
  AnyView<void, 2> matrix(const Region<void>& region, Rows rows) const { return slice(matrix(region), rows); }
  View<float, 1> per_row(const Region<float>& region, Rows rows) const {
    return slice(View<float, 1>(arena_.at(region), {N_}), rows);
  }
  View<float, 2> d_state(Rows rows) const { return matrix(plan_.state_gradient, rows); }
  AnyView<void, 2> d_input(Rows rows) const { return matrix(plan_.input_gradient, rows); }
  AnyView<void, 2> d_branch(int64_t i, Rows rows) const { return matrix(plan_.branch_gradients[i % 2], rows); }
  /// Sums of the chunks of `rows`.
  View<float, 2> partial(const Region<float>& region, int64_t width, Rows rows) const {
    const int64_t first = rows.begin / kReductionRows;
    return View<float, 2>(arena_.at(region), {chunk_count(N_), width}).slice(first, first + chunk_count(rows.count()));
  }

  View<float, 1> constant(int64_t index) const { return {arena_.at(plan_.scales) + index, {1}}; }
  View<const float, 1> one() const { return constant(kScales * at_.count()); }
  View<const float, 1> no_branch() const { return constant(kScales * at_.count() + 1); }
  View<float, 1> d_learned_a() const { return constant(kScales * at_.count() + 2); }
  View<float, 1> learned_a(int64_t i) const { return {arena_.at(plan_.learned_a) + i, {1}}; }
  View<const float, 1> a(int64_t i) const { return at_.has_skip_exponent(i) ? learned_a(i) : constant(kScales * i); }
  View<const float, 1> b(const ParameterBuffers& p, int64_t i) const {
    return at_.has_branch_scalar(i) ? p.vector(own(p, i).branch_scale) : constant(kScales * i + 1);
  }

  const SublayerParameters& own(const ParameterBuffers& p, int64_t i) const {
    return p.layout->sublayers[sublayers_[i].index];
  }
  const NormParameters& inner_parameters(const ParameterBuffers& p, int64_t i) const {
    return i == at_.count() ? p.layout->final_norm : own(p, i).inner_norm;
  }
  View<const float, 1> inner_gain(const ParameterBuffers& p, int64_t i) const {
    return p.vector(inner_parameters(p, i).gain);
  }

  /// Without a norm before the head its input is the state itself.
  bool is_head_on_state(int64_t i) const { return i == at_.count() && !at_.has_inner(i) && !at_.rounds_state(i); }

  void round_state(Context& ctx, int64_t i, Rows rows) {
    if (at_.rounds_state(i)) narrow(ctx, matrix(plan_.x[i], rows), matrix(plan_.normed[i], rows).as<Bf16>());
  }
  /// What a scale on the branch's input multiplies.
  AnyView<const void, 2> scale_operand(int64_t i, Rows rows) const {
    if (at_.has_inner(i)) return matrix(plan_.normed[i], rows);
    return matrix(plan_.x[i], rows);
  }
  void scale_input(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) {
    if (at_.has_input_scale(i)) {
      column_scale(ctx, scale_operand(i, rows), p.vector(own(p, i).in_scale), matrix(plan_.u[i], rows));
    }
  }

  /// The inner norm of i as an operation of its own; an RMS norm is a seam without a branch.
  void inner_norm(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows) {
    const View<float, 2> x = matrix(plan_.x[i], rows);
    if (at_.inner(i) == NormKind::ln) {
      const NormParameters& norm = inner_parameters(p, i);
      layer_norm(ctx, x, p.vector(norm.gain), p.vector(norm.bias), static_cast<float>(at_.factor(i)), eps_,
                 matrix(plan_.normed[i], rows), per_row(plan_.inner_r[i], rows), per_row(plan_.inner_m[i], rows));
      return;
    }
    SeamForward seam{.x = x, .F = {}, .a = one(), .b = no_branch()};
    seam.inner_gain = inner_gain(p, i);
    seam.inner_factor = static_cast<float>(at_.factor(i));
    seam.inner_eps = eps_;
    seam.y = x;
    seam.u = matrix(plan_.normed[i], rows);
    seam.inner_r = per_row(plan_.inner_r[i], rows);
    seam_forward(ctx, seam);
  }

  void input_backward(Context& ctx, const ParameterBuffers& p, int64_t i, Rows rows, RowSums sums) {
    const AnyView<void, 2> du = d_input(rows);
    const Region<float>& chunk_sums = plan_.input_partial[i % SingleStreamPlan::kSumsKept];
    if (at_.has_input_scale(i)) {
      column_scale_backward(ctx, du, scale_operand(i, rows), p.vector(own(p, i).in_scale), du,
                            p.d_vector(own(p, i).in_scale),
                            partial(plan_.scale_partial[i % SingleStreamPlan::kSumsKept], d_, rows), sums);
    }
    if (!at_.has_inner(i) || at_.is_fused(i)) return;
    // The head's norm is the only way to the last state.
    const bool accumulate = i < at_.count();
    const NormParameters& norm = inner_parameters(p, i);
    if (at_.inner(i) == NormKind::ln) {
      layer_norm_backward(ctx, du, matrix(plan_.x[i], rows), p.vector(norm.gain), per_row(plan_.inner_r[i], rows),
                          per_row(plan_.inner_m[i], rows), static_cast<float>(at_.factor(i)), d_state(rows), accumulate,
                          p.d_vector(norm.gain), p.d_vector(norm.bias), partial(chunk_sums, 2 * d_, rows), sums);
      return;
    }
    SeamBackward seam = identity_backward(p, i, rows);
    if (accumulate) seam.Ds = d_state(rows);
    seam.dx = d_state(rows);
    seam.sums = sums;
    seam_backward(ctx, seam);
  }
  SeamBackward identity_backward(const ParameterBuffers& p, int64_t i, Rows rows) const {
    SeamBackward seam{.y = matrix(plan_.x[i], rows), .a = one(), .b = no_branch()};
    seam.inner_gain = inner_gain(p, i);
    seam.inner_factor = static_cast<float>(at_.factor(i));
    seam.inner_eps = eps_;
    seam.inner_r = per_row(plan_.inner_r[i], rows);
    seam.Du = d_input(rows);
    seam.dF = d_input(rows);
    seam.d_inner_gain = p.d_vector(inner_parameters(p, i).gain);
    seam.partial = partial(plan_.input_partial[i % SingleStreamPlan::kSumsKept], seam_partial_columns(d_, false), rows);
    return seam;
  }

  SeamBackward backward_seam(const ParameterBuffers& p, int64_t i, AnyView<const void, 2> F, Rows rows,
                             RowSums sums) const {
    const bool last = i + 1 == at_.count();
    const SublayerParameters& mine = own(p, i);
    SeamBackward seam{.y = matrix(plan_.x[i + 1], rows), .a = a(i), .b = b(p, i)};
    seam.outer_gain = p.vector(mine.outer_norm.gain);
    seam.outer_bias = p.vector(mine.outer_norm.bias);
    seam.outer_eps = seam.inner_eps = eps_;
    if (at_.seam_reads_branch(i)) seam.F = branch_term(i, F, rows);
    if (seam.outer_gain || at_.wiring(i).skip_scale != LearnedScale::none) seam.x = matrix(plan_.x[i], rows);
    if (seam.outer_gain) {
      seam.outer_r = per_row(plan_.outer_r[i], rows);
      seam.d_outer_gain = p.d_vector(mine.outer_norm.gain);
    }
    if (seam.outer_bias) {
      seam.outer_mean = per_row(plan_.outer_m[i], rows);
      seam.d_outer_bias = p.d_vector(mine.outer_norm.bias);
    }
    add_scale_gradients(p, i, seam);
    if (at_.is_fused(i + 1)) {
      seam.inner_gain = inner_gain(p, i + 1);
      seam.inner_factor = static_cast<float>(at_.factor(i + 1));
      seam.inner_r = per_row(plan_.inner_r[i + 1], rows);
      seam.d_inner_gain = p.d_vector(inner_parameters(p, i + 1).gain);
    }
    // A norm of its own has sent the gradient of the branch's input to the state already; so has a head on the state.
    // After the last sublayer there is no skip path beside the head.
    const bool takes_input = at_.is_fused(i + 1) || !(at_.has_inner(i + 1) || is_head_on_state(i + 1));
    if (takes_input) seam.Du = d_input(rows);
    if (!last || !takes_input) seam.Ds = d_state(rows);
    seam.dx = d_state(rows);
    seam.dF = d_branch(i, rows);
    seam.sums = sums;
    seam.partial = partial(plan_.join_partial[i % SingleStreamPlan::kSumsKept],
                           seam_partial_columns(d_, seam_has_vectors(seam)), rows);
    return seam;
  }

  /// What is kept of these rows of branch_output(i).
  AnyView<const void, 2> recalled_branch(Context& ctx, int64_t i, Rows rows) {
    const AnyView<void, 2> values = branch_output(i);
    if (plan_.F[i].rounded.count == 0) return slice(values, rows);
    const View<float, 2> F(static_cast<float*>(ctx.scratch(stream_scratch_bytes(plan_, d_, rows.count()))),
                           {rows.count(), d_});
    widen(ctx, rounded_rows(arena_, plan_.F[i], values, rows), F);
    return F;
  }
  AnyView<const void, 2> branch_term(int64_t i, AnyView<const void, 2> F, Rows rows) const {
    return at_.wiring(i).branch == NormKind::none ? F : AnyView<const void, 2>(matrix(plan_.f, rows));
  }
  void branch_norm(Context& ctx, const ParameterBuffers& p, int64_t i, AnyView<const void, 2> F, Rows rows) {
    const NormParameters& norm = own(p, i).branch_norm;
    if (at_.wiring(i).branch == NormKind::rms) {
      rms_norm(ctx, F, p.vector(norm.gain), eps_, matrix(plan_.f, rows), per_row(plan_.branch_r[i], rows));
    } else if (at_.wiring(i).branch == NormKind::ln) {
      layer_norm(ctx, F, p.vector(norm.gain), p.vector(norm.bias), 1, eps_, matrix(plan_.f, rows),
                 per_row(plan_.branch_r[i], rows), per_row(plan_.branch_m[i], rows));
    }
  }
  void branch_norm_backward(Context& ctx, const ParameterBuffers& p, int64_t i, AnyView<const void, 2> F, Rows rows,
                            RowSums sums) {
    const NormParameters& norm = own(p, i).branch_norm;
    const AnyView<void, 2> dF = d_branch(i, rows);
    const Region<float>& chunk_sums = plan_.branch_partial[i % SingleStreamPlan::kSumsKept];
    if (at_.wiring(i).branch == NormKind::rms) {
      rms_norm_backward(ctx, dF, F, p.vector(norm.gain), per_row(plan_.branch_r[i], rows), dF, false,
                        p.d_vector(norm.gain), partial(chunk_sums, d_, rows), sums);
    } else if (at_.wiring(i).branch == NormKind::ln) {
      layer_norm_backward(ctx, dF, F, p.vector(norm.gain), per_row(plan_.branch_r[i], rows),
                          per_row(plan_.branch_m[i], rows), 1, dF, false, p.d_vector(norm.gain), p.d_vector(norm.bias),
                          partial(chunk_sums, 2 * d_, rows), sums);
    }
  }

  void add_scale_gradients(const ParameterBuffers& p, int64_t i, SeamBackward& seam) const {
    const SublayerParameters& mine = own(p, i);
    if (at_.has_skip_vector(i)) {
      seam.skip_scale = p.vector(mine.skip_scale);
      if (!p.layout->at(mine.skip_scale).frozen) seam.d_skip_scale = p.d_vector(mine.skip_scale);
    }
    if (at_.has_skip_exponent(i)) seam.d_a = d_learned_a();
    if (at_.has_branch_vector(i)) {
      seam.branch_scale = p.vector(mine.branch_scale);
      seam.d_branch_scale = p.d_vector(mine.branch_scale);
    }
    if (at_.has_branch_scalar(i)) seam.d_b = p.d_vector(mine.branch_scale);
  }

  std::vector<Sublayer> sublayers_;
  Positions at_;
  SingleStreamPlan plan_;
  const Arena& arena_;
  int64_t d_, N_ = 0;
  float eps_;
};

}  // namespace

namespace {

/// Numbers of a chunk of rows in the largest of the sums over rows that the backward pass takes; 0: it takes none.
int64_t most_row_sums(const Positions& at, int64_t d) {
  int64_t columns = 0;
  const auto norm = [d](NormKind kind) { return kind == NormKind::none ? 0 : (kind == NormKind::ln ? 2 * d : d); };
  for (int64_t i = 0; i <= at.count(); ++i) {
    if (at.has_input_scale(i)) columns = std::max(columns, d);
    if (!at.is_fused(i)) {
      columns = std::max(columns, at.inner(i) == NormKind::rms ? seam_partial_columns(d, false) : norm(at.inner(i)));
    }
    if (i == at.count()) break;
    columns = std::max(columns, norm(at.wiring(i).branch));
    const bool vectors = at.has_skip_vector(i) || at.has_branch_vector(i);
    const bool scales = vectors || at.has_skip_exponent(i) || at.has_branch_scalar(i);
    const NormKind outer = at.wiring(i).outer;
    if (scales || outer != NormKind::none || at.is_fused(i + 1)) {
      columns = std::max(columns, seam_partial_columns(d, vectors || outer == NormKind::ln));
    }
  }
  return columns;
}

}  // namespace

SingleStreamPlan plan_single_stream(const ModelConfig& config, const std::vector<Sublayer>& sublayers,
                                    const DecoderOptions& options, ArenaPlan& arena) {
  using enum MemoryKind;
  const Positions at(config, sublayers, options.compute);
  const int64_t n = at.count(), N = options.max_tokens, elements = N * config.hidden_size;
  constexpr int64_t kHead = -1;  // the last stream and the head's input have buffers of their own
  SingleStreamPlan plan{.compute = options.compute};
  ActivationSlots<float> kept(arena, elements), local(arena, elements), row_scalars(arena, N);
  ActivationSlots<void> normed(arena, elements, activations, plan.compute),
      scaled(arena, elements, activations, plan.compute), branches(arena, elements, activations, plan.compute);
  ActivationSlots<Bf16> rounded(arena, elements);
  plan.passing = arena.add(workspace, elements, plan.compute);
  int64_t next = 0;
  const auto per_row = [&](bool wanted) { return row_scalars.at_if(wanted, options.training ? next++ : 0); };
  bool any_branch_norm = false;
  for (int64_t i = 0; i <= n; ++i) {
    const int64_t slot = options.training && i == n ? kHead : options.slot(i, n);
    const bool starts_segment = i == n || options.starts_segment(i, n);
    plan.x.push_back(!options.training ? kept.at(0) : (starts_segment ? kept.at(i) : local.at(slot)));
    const int64_t parity = slot == kHead ? kHead : (options.training ? i % 2 : 0);
    plan.normed.push_back(normed.at_if(at.has_inner(i) || at.rounds_state(i), parity));
    plan.u.push_back(scaled.at_if(at.has_input_scale(i), parity));
    plan.inner_r.push_back(per_row(at.has_inner(i)));
    plan.inner_m.push_back(per_row(at.inner(i) == NormKind::ln));
    if (i == n) break;
    const Wiring& wiring = at.wiring(i);
    any_branch_norm = any_branch_norm || wiring.branch != NormKind::none;
    const bool keeps = options.training && at.keeps_branch(i), rounds = options.rounds_activations();
    plan.F.push_back({keeps && !rounds ? branches.at(slot) : plan.passing, rounded.at_if(keeps && rounds, slot)});
    plan.branch_r.push_back(per_row(wiring.branch != NormKind::none));
    plan.branch_m.push_back(per_row(wiring.branch == NormKind::ln));
    plan.outer_r.push_back(per_row(wiring.outer != NormKind::none));
    plan.outer_m.push_back(per_row(wiring.outer == NormKind::ln));
  }
  if (any_branch_norm) plan.f = options.training ? arena.add(workspace, elements, plan.compute) : plan.passing;
  plan.scales = arena.add<float>(weights, kScales * n + 3);
  if (config.learnable_alpha) plan.learned_a = arena.add<float>(weights, n);
  if (options.training) {
    plan.state_gradient = arena.add<float>(workspace, elements);
    plan.input_gradient = arena.add(workspace, elements, plan.compute);
    const int64_t d = config.hidden_size, chunks = chunk_count(N);
    bool any_input_scale = false;
    for (int64_t i = 0; i < n; ++i) any_input_scale = any_input_scale || at.has_input_scale(i);
    for (Region<void>& gradient : plan.branch_gradients) gradient = arena.add(workspace, elements, plan.compute);
    for (int64_t i = 0; i < SingleStreamPlan::kSumsKept; ++i) {
      plan.join_partial[i] = arena.add<float>(workspace, chunks * seam_partial_columns(d, true));
      plan.input_partial[i] = arena.add<float>(workspace, chunks * seam_partial_columns(d, false));
      plan.scale_partial[i] = arena.add<float>(workspace, any_input_scale ? chunks * d : 0);
      plan.branch_partial[i] = arena.add<float>(workspace, any_branch_norm ? chunks * 2 * d : 0);
    }
    if (options.observe_gradients) {
      plan.observed_gradient = arena.add<float>(workspace, elements);
      plan.unused_gain = arena.add<float>(workspace, config.hidden_size);
    }
    expect_row_sums(arena.beside(), N, most_row_sums(at, d));
  }
  arena.beside().expect(OperationMemory::scratch, stream_scratch_bytes(plan, config.hidden_size, N));
  return plan;
}

int64_t stream_scratch_bytes(const SingleStreamPlan& plan, int64_t hidden_size, int64_t rows) {
  const auto is_rounded = [](const KeptRegion& F) { return F.rounded.count > 0; };
  if (std::none_of(plan.F.begin(), plan.F.end(), is_rounded)) return 0;
  return rows * hidden_size * static_cast<int64_t>(sizeof(float));
}

std::unique_ptr<ResidualStream> make_single_stream(Context& ctx, const ModelConfig& config,
                                                   const std::vector<Sublayer>& sublayers, const SingleStreamPlan& plan,
                                                   const Arena& arena) {
  return std::make_unique<SingleStream>(ctx, config, sublayers, plan, arena);
}

}  // namespace keel
