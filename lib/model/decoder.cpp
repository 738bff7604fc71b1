#include "keel/model/decoder.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/memory/memory.h"

namespace keel {
namespace {

/// Rows of logits at a time: enough for a full-speed product, at most about 16 MiB.
int64_t logits_rows(int64_t vocab_size, int64_t max_tokens) {
  constexpr int64_t kElements = int64_t{4} << 20;
  constexpr int64_t kFewest = 64;
  const int64_t rows = std::max(kFewest, kElements / vocab_size / kFewest * kFewest);
  return std::min(rows, max_tokens);
}

}  // namespace

DecoderPlan plan_decoder(const ModelConfig& config, std::vector<Sublayer> sublayers, const DecoderOptions& options,
                         ArenaPlan& arena) {
  DecoderPlan plan;
  plan.sublayers = std::move(sublayers);
  plan.options = options;
  plan.stream = plan_single_stream(config, plan.sublayers, options, arena);
  plan.attention = plan_attention(config, plan.sublayers, options, arena);
  plan.mlp = plan_mlp(config, plan.sublayers, options, arena);
  plan.logits_rows = logits_rows(config.vocab_size, options.max_tokens);
  plan.logits = arena.add<float>(MemoryKind::workspace, plan.logits_rows * config.vocab_size);
  plan.logit_inputs = arena.add<float>(MemoryKind::workspace, options.logit_rows * config.hidden_size);
  return plan;
}

Decoder::Decoder(Context& ctx, const ModelConfig& config, const DecoderPlan& plan, const Arena& arena,
                 std::function<bool()> interrupted)
    : ctx_(ctx), config_(config), plan_(plan), arena_(arena), interrupted_(std::move(interrupted)) {
  stream_ = make_single_stream(ctx_, config_, plan_.sublayers, plan_.stream, arena_);
  attention_ = make_attention(ctx_, config_, plan_.attention, plan_.options, arena_);
  mlp_ = make_mlp(config_, plan_.mlp, arena_);
}

Decoder::~Decoder() = default;

Branches& Decoder::branch(const Sublayer& sublayer) {
  return sublayer.branch == BranchKind::attention ? *attention_ : *mlp_;
}

bool Decoder::forward(const ParameterBuffers& p, const FlatBatch& batch, const DecoderObserver& observer) {
  const int64_t n = static_cast<int64_t>(plan_.sublayers.size());
  embedding(ctx_, batch.tokens, p.matrix(p.layout->embedding), stream_->embedding_output(batch.tokens.extent(0)));
  stream_->begin(ctx_, p);
  for (int64_t i = 0; i < n; ++i) {
    if (interrupted_ && interrupted_()) return false;
    const Sublayer& sublayer = plan_.sublayers[i];
    branch(sublayer).forward(ctx_, p, batch, sublayer, i, stream_->branch_input(i), stream_->branch_output(i));
    if (observer.branch) observer.branch(i, stream_->state(i), stream_->branch_output(i));
    stream_->join(ctx_, p, i);
  }
  return true;
}

View<const float, 2> Decoder::stream(int64_t i) const {
  return stream_->state(i);
}

SkipFactors Decoder::skip_factors(const ParameterBuffers& p, int64_t i) const {
  return stream_->skip_factors(p, i);
}

void Decoder::show_gradient(const ParameterBuffers& p, int64_t i, const DecoderObserver& observer) {
  if (observer.gradient) observer.gradient(i, stream_->state_gradient(ctx_, p, i));
}

View<const float, 2> Decoder::head_input() const {
  return stream_->branch_input(static_cast<int64_t>(plan_.sublayers.size()));
}

/// The loss of the batch; dx and dW null: without gradients.
void Decoder::head(const ParameterBuffers& p, const FlatBatch& batch, View<StepScalars, 1> scalars, View<float, 1> nll,
                   View<float, 2> dx, View<float, 2> dW) {
  cross_entropy(ctx_, {.x = head_input(),
                       .W = p.matrix(p.layout->head),
                       .targets = batch.targets,
                       .weights = batch.weights,
                       .logits = logit_chunk(),
                       .scalars = scalars,
                       .nll = nll,
                       .dx = dx,
                       .dW = dW});
}

void Decoder::loss(const ParameterBuffers& p, const FlatBatch& batch, View<StepScalars, 1> scalars,
                   View<float, 1> nll) {
  head(p, batch, scalars, nll, {}, {});
}

View<const float, 2> Decoder::pick_rows(View<const int32_t, 1> rows) {
  if (rows.extent(0) > plan_.options.logit_rows) {
    throw Error(ErrorKind::shape, std::to_string(rows.extent(0)) + " rows of logits, at most " +
                                      std::to_string(plan_.options.logit_rows) + " are planned for");
  }
  const View<float, 2> inputs(arena_.at(plan_.logit_inputs), {rows.extent(0), config_.hidden_size});
  embedding(ctx_, rows, head_input(), inputs);
  return inputs;
}

View<float, 2> Decoder::logit_chunk() const {
  return {arena_.at(plan_.logits), {plan_.logits_rows, config_.vocab_size}};
}

void Decoder::logits(const ParameterBuffers& p, View<const int32_t, 1> rows, View<float, 2> logits) {
  matmul(ctx_, pick_rows(rows), p.matrix(p.layout->head), logits, Transpose::b);
}

void Decoder::score(const ParameterBuffers& p, View<const int32_t, 1> rows, View<const int32_t, 1> targets,
                    View<const float, 1> weights, View<float, 1> nll, View<int32_t, 1> argmax) {
  cross_entropy(ctx_, {.x = pick_rows(rows),
                       .W = p.matrix(p.layout->head),
                       .targets = targets,
                       .weights = weights,
                       .logits = logit_chunk(),
                       .scalars = {},
                       .nll = nll,
                       .argmax = argmax,
                       .dx = {},
                       .dW = {}});
}

/// Gradients that operations only ever add to: all but those of the branches' matrices, which their products overwrite.
void Decoder::zero_sparse_gradients(const ParameterBuffers& p) {
  for (const Parameter& parameter : p.layout->parameters) {
    const ParameterClass c = parameter.parameter_class;
    if (c == ParameterClass::attention || c == ParameterClass::mlp) continue;
    zero(ctx_, View<float, 1>(p.gradients.data() + parameter.offset, {parameter.size}));
  }
}

/// Activations of sublayers [first, end) again, from the stream that was kept.
bool Decoder::recompute(const ParameterBuffers& p, const FlatBatch& batch, int64_t first, int64_t end) {
  stream_->restore(ctx_, p, first);
  for (int64_t i = first; i < end; ++i) {
    if (interrupted_ && interrupted_()) return false;
    const Sublayer& sublayer = plan_.sublayers[i];
    branch(sublayer).forward(ctx_, p, batch, sublayer, i, stream_->branch_input(i), stream_->branch_output(i));
    if (i + 1 < end) stream_->join(ctx_, p, i);
  }
  return true;
}

bool Decoder::forward_backward(const ParameterBuffers& p, const FlatBatch& batch, bool accumulate,
                               View<StepScalars, 1> scalars, View<float, 1> nll, const DecoderObserver& observer) {
  const int64_t n = static_cast<int64_t>(plan_.sublayers.size());
  if (!forward(p, batch, observer)) return false;
  if (!accumulate) zero_sparse_gradients(p);
  head(p, batch, scalars, nll, stream_->branch_input_gradient(n), p.d_matrix(p.layout->head));
  stream_->input_backward(ctx_, p, n);
  show_gradient(p, n, observer);
  const int64_t segment = plan_.options.segment > 0 ? plan_.options.segment : std::max<int64_t>(n, 1);
  for (int64_t end = n; end > 0;) {
    const int64_t first = (end - 1) / segment * segment;
    if (end < n && !recompute(p, batch, first, end)) return false;
    for (int64_t i = end - 1; i >= first; --i) {
      if (interrupted_ && interrupted_()) return false;
      const Sublayer& sublayer = plan_.sublayers[i];
      const View<const float, 2> dF = stream_->join_backward(ctx_, p, i);
      branch(sublayer).backward(ctx_, p, batch, sublayer, i, accumulate, dF, stream_->branch_input(i),
                                stream_->branch_input_gradient(i));
      stream_->input_backward(ctx_, p, i);
      show_gradient(p, i, observer);
    }
    end = first;
  }
  const auto gradient = stream_->embedding_gradient();
  embedding_backward(ctx_, batch.tokens, gradient.first, p.d_matrix(p.layout->embedding));
  if (gradient.second) embedding_backward(ctx_, batch.tokens, gradient.second, p.d_matrix(p.layout->embedding));
  return true;
}

}  // namespace keel
