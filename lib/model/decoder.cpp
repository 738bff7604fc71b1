#include "keel/model/decoder.h"

#include <algorithm>
#include <numeric>

#include "keel/base/error.h"
#include "keel/kernels/attention/attention.h"
#include "keel/kernels/cross_entropy/cross_entropy.h"
#include "keel/kernels/embedding/embedding.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/matmul/matmul.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/decoder_pass.h"

namespace keel {
namespace {

/// Rows of logits at a time: enough for a full-speed product, at most about 16 MiB; on tensor cores, which would wait for
/// the head's gradient to be read and written that often, 256 MiB.
int64_t logits_rows(int64_t vocab_size, int64_t max_tokens, ElementType compute) {
  const int64_t elements = int64_t{compute == ElementType::bf16 ? 64 : 4} << 20;
  constexpr int64_t kFewest = 64;
  const int64_t rows = std::max(kFewest, elements / vocab_size / kFewest * kFewest);
  return std::min(rows, max_tokens);
}

/// Columns of a block's matrices [.., hidden_size] (or their transposes) together.
int64_t block_columns(const ModelConfig& c) {
  return 2 * c.query_size() + 2 * c.key_value_size() + 3 * c.intermediate_size;
}

}  // namespace

RowBlocks decoder_row_blocks(const ModelConfig& config, int64_t N, int64_t sequence_length, int threads) {
  constexpr int64_t kBytes = int64_t{3} << 20, kFewest = 128, kMost = 512;  // of a piece
  constexpr int64_t kTooLong = 4;                                           // sequences, of the wanted rows
  constexpr double kTooUneven = 1.1;
  const int64_t columns = 3 * config.intermediate_size + 4 * config.hidden_size;
  const int64_t wanted = std::clamp(kBytes / (columns * static_cast<int64_t>(sizeof(float))), kFewest, kMost);
  const int64_t unit = std::lcm(std::max<int64_t>(sequence_length, 1), kReductionRows);
  if (N % std::max<int64_t>(sequence_length, 1) == 0 && unit <= kTooLong * wanted) {
    const RowBlocks of_sequences(N, std::max(unit, wanted / unit * unit), threads, unit);
    if (of_sequences.imbalance(threads) <= kTooUneven) return of_sequences;
  }
  return {N, wanted, threads};
}

bool decoder_sums_by_blocks(const ModelConfig& config, const RowBlocks& blocks) {
  const int64_t pieces = blocks.count * blocks.pieces();
  const int64_t operands = blocks.rows * (block_columns(config) + 4 * config.hidden_size);
  return pieces > 1 && 2 * pieces * config.hidden_size * block_columns(config) < operands;
}

int64_t decoder_block_sums(const ModelConfig& config, const RowBlocks& blocks) {
  if (blocks.count == 1 || !decoder_sums_by_blocks(config, blocks)) return 0;
  return kGroupsKept * blocks.count * config.hidden_size * block_columns(config);
}

int64_t decoder_scratch_bytes(const Context& ctx, const ModelConfig& config, const DecoderPlan& plan,
                              const RowBlocks& blocks) {
  const int64_t rows =
      std::max(mlp_scratch_bytes(config.intermediate_size, blocks.most_rows_of_piece(), plan.options.compute),
               stream_scratch_bytes(plan.stream, config.hidden_size, blocks.most_rows_of_piece()));
  const int64_t attention = attention_memory(ctx, config.head_dim);
  if (blocks.count == 1) return std::max(rows, attention);
  return attention + std::max(ctx.threads() * rows, attention);
}

int64_t decoder_untouched_bytes(const ModelConfig& config, const DecoderPlan& plan, const RowBlocks& blocks) {
  return decoder_sums_by_blocks(config, blocks) ? plan.mlp.whole_batch_bytes() : 0;
}

DecoderPlan plan_decoder(const ModelConfig& config, std::vector<Sublayer> sublayers, const DecoderOptions& options,
                         ArenaPlan& arena) {
  DecoderPlan plan;
  plan.sublayers = std::move(sublayers);
  plan.options = options;
  plan.stream = plan_single_stream(config, plan.sublayers, options, arena);
  plan.attention = plan_attention(config, plan.sublayers, options, arena);
  plan.mlp = plan_mlp(config, plan.sublayers, options, arena);
  plan.logits_rows = logits_rows(config.vocab_size, options.max_tokens, options.compute);
  plan.logits = arena.add<float>(MemoryKind::workspace, plan.logits_rows * config.vocab_size);
  const bool has_own_gradient = options.training && options.compute == ElementType::bf16;
  plan.d_logits = arena.add(MemoryKind::workspace, has_own_gradient ? plan.logits.count : 0, options.compute);
  plan.logit_inputs = arena.add(MemoryKind::workspace, options.logit_rows * config.hidden_size, options.compute);
  expect_linear(arena.beside(), WeightType::fp32, options.compute, config.vocab_size, config.hidden_size,
                options.max_tokens);
  expect_cross_entropy(arena.beside(), options.max_tokens);
  if (options.training) {
    expect_matmul(arena.beside());
    expect_embedding_backward(arena.beside(), options.max_tokens);
  }
  return plan;
}

Decoder::Decoder(Context& ctx, const ModelConfig& config, const DecoderPlan& plan, const Arena& arena,
                 std::function<bool()> interrupted)
    : ctx_(ctx), config_(config), plan_(plan), arena_(arena), interrupted_(std::move(interrupted)) {
  stream_ = make_single_stream(ctx_, config_, plan_.sublayers, plan_.stream, arena_);
  attention_ = make_attention(ctx_, config_, plan_.attention, plan_.options, arena_);
  mlp_ = make_mlp(config_, plan_.mlp, plan_.options, arena_);
}

Decoder::~Decoder() = default;

Branches& Decoder::branch(int64_t i) const {
  return plan_.sublayers[i].branch == BranchKind::attention ? *attention_ : *mlp_;
}

bool Decoder::forward(const ParameterBuffers& p, const FlatBatch& batch, const DecoderObserver& observer) {
  const int64_t n = std::ssize(plan_.sublayers), N = batch.tokens.extent(0);
  embedding(ctx_, batch.tokens, p.weight(p.layout->embedding), stream_->embedding_output(N));
  stream_->begin(ctx_, p);
  const RowBlocks blocks = row_blocks(N);
  const Pass pass{.parameters = p,
                  .batch = batch,
                  .observer = observer,
                  .blocks = blocks,
                  .by_sequences = holds_sequences(blocks, batch)};
  if (n > 0) return run_sublayers(pass, 0, n);
  stream_->start(ctx_, p, {0, N});
  return true;
}

RowBlocks Decoder::row_blocks(int64_t N) const {
  // A GPU takes all rows at once.
  if (ctx_.device() != Device::cpu) return {N, N + kReductionRows, 1};
  return decoder_row_blocks(config_, N, plan_.options.max_positions, ctx_.threads());
}

/// Whether each piece holds whole sequences, so that a thread takes its rows through attention too.
bool Decoder::holds_sequences(const RowBlocks& blocks, const FlatBatch& batch) {
  if (batch.page_table) return false;
  bool all = true;
  for (int64_t block = 0; block < blocks.count; ++block) {
    blocks.for_pieces(block, [&](Rows piece) { all = all && sequences_of(batch, piece); });
  }
  return all;
}

View<const float, 2> Decoder::stream(int64_t i) const {
  return stream_->state(i);
}

SkipFactors Decoder::skip_factors(const ParameterBuffers& p, int64_t i) const {
  return stream_->skip_factors(p, i);
}

AnyView<const void, 2> Decoder::head_input() const {
  return stream_->branch_input(static_cast<int64_t>(plan_.sublayers.size()));
}

/// The loss of the batch; dx and dW null: without gradients.
void Decoder::head(const ParameterBuffers& p, const FlatBatch& batch, View<StepScalars, 1> scalars, View<float, 1> nll,
                   AnyView<void, 2> dx, View<float, 2> dW) {
  cross_entropy(ctx_, {.x = head_input(),
                       .W = p.weight(p.layout->head),
                       .targets = batch.targets,
                       .weights = batch.weights,
                       .logits = logit_chunk(),
                       .scalars = scalars,
                       .nll = nll,
                       .d_logits = arena_.view<2>(plan_.d_logits, {plan_.logits_rows, config_.vocab_size}),
                       .dx = dx,
                       .dW = dW});
}

void Decoder::loss(const ParameterBuffers& p, const FlatBatch& batch, View<StepScalars, 1> scalars,
                   View<float, 1> nll) {
  head(p, batch, scalars, nll, {}, {});
}

AnyView<const void, 2> Decoder::pick_rows(View<const int32_t, 1> rows) {
  if (rows.extent(0) > plan_.options.logit_rows) {
    throw Error(ErrorKind::shape, std::to_string(rows.extent(0)) + " rows of logits, at most " +
                                      std::to_string(plan_.options.logit_rows) + " are planned for");
  }
  const AnyView<void, 2> inputs = arena_.view<2>(plan_.logit_inputs, {rows.extent(0), config_.hidden_size});
  embedding(ctx_, rows, head_input(), inputs);
  return inputs;
}

View<float, 2> Decoder::logit_chunk() const {
  return {arena_.at(plan_.logits), {plan_.logits_rows, config_.vocab_size}};
}

void Decoder::logits(const ParameterBuffers& p, View<const int32_t, 1> rows, View<float, 2> logits) {
  linear(ctx_, pick_rows(rows), p.weight(p.layout->head), logits);
}

void Decoder::score(const ParameterBuffers& p, View<const int32_t, 1> rows, View<const int32_t, 1> targets,
                    View<const float, 1> weights, View<float, 1> nll, View<int32_t, 1> argmax) {
  cross_entropy(ctx_, {.x = pick_rows(rows),
                       .W = p.weight(p.layout->head),
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

std::array<BlockSums, kGroupsKept> Decoder::block_sums(const RowBlocks& blocks, bool accumulate) {
  if (!decoder_sums_by_blocks(config_, blocks)) return {};
  const BlockSums single{.blocks = 1, .accumulate = accumulate};
  std::array<BlockSums, kGroupsKept> all;
  all.fill(single);
  if (blocks.count == 1) return all;
  const int64_t floats = decoder_block_sums(config_, blocks);
  if (std::ssize(block_sums_) < floats) block_sums_.resize(floats);
  const int64_t d = config_.hidden_size, q = config_.query_size(), F = config_.intermediate_size;
  for (float* first = block_sums_.data(); BlockSums & sums : all) {
    sums = {.blocks = blocks.count, .qkv = first};
    sums.o = sums.qkv + blocks.count * d * (q + 2 * config_.key_value_size());
    sums.gate_up = sums.o + blocks.count * d * q;
    sums.down = sums.gate_up + blocks.count * d * 2 * F;
    first += floats / kGroupsKept;
  }
  return all;
}

bool Decoder::forward_backward(const ParameterBuffers& p, const FlatBatch& batch, bool accumulate,
                               View<StepScalars, 1> scalars, View<float, 1> nll, const DecoderObserver& observer) {
  const int64_t n = std::ssize(plan_.sublayers), N = batch.tokens.extent(0);
  if (!forward(p, batch, observer)) return false;
  if (!accumulate) zero_sparse_gradients(p);
  head(p, batch, scalars, nll, stream_->branch_input_gradient(n), p.d_matrix(p.layout->head));
  const RowBlocks blocks = row_blocks(N);
  const std::array<BlockSums, kGroupsKept> sums = block_sums(blocks, accumulate);
  const Pass pass{.parameters = p,
                  .batch = batch,
                  .observer = observer,
                  .blocks = blocks,
                  .by_sequences = holds_sequences(blocks, batch),
                  .accumulate = accumulate,
                  .recomputes = true,
                  .block_sums = sums[0].blocks > 0 ? sums.data() : nullptr};
  for_row_blocks(ctx_, pass.blocks, [&](Context& ctx, Rows rows) { stream_->input_backward(ctx, p, n, rows); });
  stream_->add_input_gradients(ctx_, p, n);
  if (observer.gradient) observer.gradient(n, stream_->state_gradient(ctx_, p, n));
  const int64_t segment = plan_.options.segment > 0 ? plan_.options.segment : std::max<int64_t>(n, 1);
  for (int64_t end = n; end > 0;) {
    const int64_t first = std::max<int64_t>(0, end - segment);
    if (end < n && !run_sublayers(pass, first, end)) return false;
    if (!run_backward(pass, first, end)) return false;
    end = first;
  }
  const auto gradient = stream_->embedding_gradient();
  embedding_backward(ctx_, batch.tokens, gradient.first, p.d_matrix(p.layout->embedding));
  if (gradient.second) embedding_backward(ctx_, batch.tokens, gradient.second, p.d_matrix(p.layout->embedding));
  return true;
}

}  // namespace keel
