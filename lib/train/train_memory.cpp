#include "keel/train/train_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "keel/base/signals.h"
#include "keel/checkpoint/safetensors.h"
#include "keel/inference/inference_model.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/common/chunks.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/train/recomputation.h"
#include "keel/train/train_samples.h"

namespace keel {
namespace {

/// The most segments a micro-batch can be cut into, plus one: with a document mask every token may be a document.
int64_t cu_seqlens_capacity(const TrainSettings& settings, int64_t sequences) {
  return (settings.data.document_mask ? sequences * settings.sequence_length() : sequences) + 1;
}

/// Of the samples: passes over a batch of prompts, and over one token of each sequence that still goes on.
std::vector<MatmulShape> sampling_products(const TrainSettings& settings) {
  std::vector<MatmulShape> shapes;
  if (settings.validate.sample.prompt_ids.empty()) return shapes;
  const ModelConfig& c = settings.model;
  const GeneratorSizes sizes = sample_sizes(settings);
  const auto add = [&](int64_t out, int64_t in, int64_t rows) {
    shapes.push_back({.m = rows, .n = out, .k = in, .transpose = Transpose::b});
  };
  for (int64_t rows = 1; rows <= sizes.batch_sequences; ++rows) {
    for (const auto& [out, in] : block_matrices(c)) add(out, in, rows);
    add(c.vocab_size, c.hidden_size, rows);
  }
  for (const auto& [out, in] : block_matrices(c)) add(out, in, sizes.max_tokens);
  return shapes;
}

/// The host's copy of a micro-batch.
int64_t host_batch_bytes(const TrainMemory& m) {
  const int64_t counts = m.tokens.count + m.targets.count + m.positions.count + m.batch_weights.count;
  return (counts + m.cu_seqlens_capacity) * int64_t{sizeof(int32_t)};
}

std::vector<AdamwSegment> trained_parameters(const ParameterLayout& layout) {
  std::vector<AdamwSegment> segments;
  for (const Parameter& p : layout.parameters) {
    if (!p.frozen) segments.push_back({.offset = p.offset, .size = p.size});
  }
  return segments;
}

/// Names, shapes and header of the optimiser's file, the longest of a checkpoint, while it is written.
int64_t saving_bytes(const ParameterLayout& layout) {
  constexpr int64_t kHeapBlocks = 4 * 64;   // name, shape, parts, the name's place in a set
  constexpr int64_t kHeaderText = 2 * 160;  // an entry, twice while the text grows
  constexpr int64_t kTensors = 2;           // AdamW's averages
  return kTensors * std::ssize(layout.parameters) *
         (static_cast<int64_t>(sizeof(TensorSource)) + kHeapBlocks + kHeaderText);
}

}  // namespace

TrainMemory plan_training(const TrainSettings& settings, int64_t micro_batch_sequences) {
  using enum MemoryKind;
  TrainMemory m;
  m.layout = parameter_layout(settings.model, settings.init);
  m.micro_batch_sequences = micro_batch_sequences;
  const int64_t N = micro_batch_sequences * settings.sequence_length();
  const int64_t P = m.layout.size;
  m.weights = m.arena.add<float>(weights, P);
  if (settings.precision == ElementType::bf16) m.compute = m.arena.add<Bf16>(weights, P);
  m.gradients = m.arena.add<float>(gradients, P);
  if (settings.keeps_optimizer) {
    m.exp_avg = m.arena.add<float>(optimizer, P);
    m.exp_avg_sq = m.arena.add<float>(optimizer, P);
  }
  m.decoder = plan_decoder(settings.model, all_sublayers(settings.model),
                           {.max_tokens = N,
                            .max_positions = settings.sequence_length(),
                            .training = true,
                            .segment = settings.recompute_segment,
                            .compute = settings.precision,
                            .activations = settings.activations,
                            .observe_gradients = settings.profile_every > 0},
                           m.arena);
  if (settings.profile_every > 0) m.profile = plan_gradient_profile(settings.model, m.layout, N, m.arena);
  m.scalars = m.arena.add<StepScalars>(workspace, 1);
  m.norm_partial = m.arena.add<double>(workspace, chunk_count(P, kGradNormChunk));
  m.tokens = m.arena.add<int32_t>(workspace, N);
  m.targets = m.arena.add<int32_t>(workspace, N);
  m.positions = m.arena.add<int32_t>(workspace, N);
  m.batch_weights = m.arena.add<float>(workspace, N);
  m.cu_seqlens_capacity = cu_seqlens_capacity(settings, micro_batch_sequences);
  m.cu_seqlens = m.arena.add<int32_t>(workspace, m.cu_seqlens_capacity);
  if (settings.keeps_optimizer) expect_adamw(m.arena.beside(), trained_parameters(m.layout));
  if (!settings.validate.sample.prompt_ids.empty()) {
    const DecoderOptions options = sample_sizes(settings).decoder_options();
    m.sampler = plan_decoder(settings.model, all_sublayers(settings.model), options, m.arena);
    expect_batches(m.arena.beside(), options);
  }
  return m;
}

std::vector<TrainingProduct> training_products(const TrainSettings& settings, int64_t micro_batch_sequences) {
  const ModelConfig& c = settings.model;
  const int64_t N = micro_batch_sequences * settings.sequence_length();
  const int64_t d = c.hidden_size;
  const int64_t passes = settings.batch_sequences / micro_batch_sequences;
  std::vector<TrainingProduct> products;
  // Forward, input gradient and weight gradient of one weight; the first micro-batch overwrites, the others add.
  const auto add = [&](int64_t out, int64_t in, int64_t rows, int64_t times, bool is_head) {
    const ElementType result = is_head ? ElementType::fp32 : settings.precision;
    const bool of_rows = !is_head;
    products.push_back({{.m = rows, .n = out, .k = in, .transpose = Transpose::b}, of_rows, result, passes * times});
    products.push_back({{.m = rows, .n = in, .k = out}, of_rows, settings.precision, passes * times});
    const MatmulShape overwrites{.m = out, .n = in, .k = rows, .transpose = Transpose::a};
    MatmulShape adds = overwrites;
    adds.accumulate = true;
    const int64_t adding = is_head ? passes : passes - 1;  // that of the head begins at zero
    if (adding < passes) products.push_back({overwrites, of_rows, ElementType::fp32, times});
    if (adding > 0) products.push_back({adds, of_rows, ElementType::fp32, adding * times});
  };
  for (const auto& [out, in] : block_matrices(c)) add(out, in, N, c.num_hidden_layers, false);
  const int64_t chunk = plan_training(settings, micro_batch_sequences).decoder.logits_rows;
  add(c.vocab_size, d, chunk, N / chunk, true);
  if (N % chunk != 0) add(c.vocab_size, d, N % chunk, 1, true);
  return products;
}

MemoryEstimate estimate_memory(Context& ctx, const TrainMemory& memory, const TrainSettings& settings,
                               int64_t held_bytes) {
  constexpr int64_t kThreadBytes = 256 << 10;  // of its stack and heap
  const RowBlocks blocks =
      decoder_row_blocks(settings.model, memory.decoder.options.max_tokens, settings.sequence_length(), ctx.threads());
  const bool sums_by_blocks = decoder_sums_by_blocks(settings.model, blocks);
  std::vector<MatmulShape> shapes, of_workers;
  for (const TrainingProduct& product : training_products(settings, memory.micro_batch_sequences)) {
    const bool is_gradient = product.shape.transpose == Transpose::a;
    if (!product.of_rows || (is_gradient && !sums_by_blocks)) {
      shapes.push_back(product.shape);
      continue;
    }
    for (int64_t block = 0; block < blocks.count; ++block) {
      blocks.for_pieces(block, [&](Rows piece) {
        MatmulShape shape = product.shape;
        (is_gradient ? shape.k : shape.m) = piece.count();
        shape.accumulate = is_gradient && (piece.continues || (blocks.count == 1 && product.shape.accumulate));
        (blocks.count == 1 ? shapes : of_workers).push_back(shape);
      });
    }
  }
  int64_t libraries =
      held_bytes + host_batch_bytes(memory) + saving_bytes(memory.layout) + ctx.threads() * kThreadBytes;
  if (memory.sampler) {
    for (const MatmulShape& shape : sampling_products(settings)) shapes.push_back(shape);
    libraries += sample_sizes(settings).host_bytes(settings.model.vocab_size);
  }
  libraries += decoder_block_sums(settings.model, blocks) * static_cast<int64_t>(sizeof(float));
  libraries += decoder_scratch_bytes(ctx, settings.model, memory.decoder, blocks);
  return {.arena_bytes = memory.arena.total_bytes() - decoder_untouched_bytes(settings.model, memory.decoder, blocks),
          .library_bytes = libraries + matmul_memory(ctx, shapes, of_workers)};
}

MemoryEstimate estimate_with_allowance(const TrainMemory& memory) {
  return {.arena_bytes = memory.arena.total_bytes(), .library_bytes = kLibraryAllowance};
}

MemoryEstimate estimate_gpu_memory(const TrainMemory& memory) {
  return {.arena_bytes = memory.arena.total_bytes(),
          .operation_bytes = memory.arena.beside().total_bytes(),
          .library_bytes = kCudaContextBytes};
}

MemoryEstimate estimate_device_memory(const TrainMemory& memory) {
  return {.arena_bytes = memory.arena.total_bytes(),
          .operation_bytes = memory.arena.beside().total_bytes(),
          .library_bytes = kCudaCodeBytes};
}

std::vector<int64_t> possible_micro_batches(const TrainSettings& settings) {
  const int64_t n = settings.batch_sequences;
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small.push_back(d);
    if (d != n / d) large.push_back(n / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

namespace {

constexpr int64_t kTokens = 4096;

bool has_many_tokens(const TrainSettings& settings, int64_t sequences) {
  return sequences > 1 && sequences * settings.sequence_length() > kTokens;
}

/// Of those that fit the limit in some mode of recomputation.
int64_t cheapest_micro_batch(const TrainSettings& settings) {
  const std::vector<int64_t> sizes = possible_micro_batches(settings);
  int64_t chosen = 1;
  double least = std::numeric_limits<double>::infinity();
  for (auto sequences = sizes.rbegin(); sequences != sizes.rend(); ++sequences) {
    if (has_many_tokens(settings, *sequences)) continue;
    const int64_t limit = settings.memory_limit_bytes;
    const TrainSettings with = with_recomputation(settings, *sequences, limit, estimate_with_allowance);
    if (estimate_with_allowance(plan_training(with, *sequences)).total_bytes() > limit) continue;
    const double cost = nominal_step_cost(with, *sequences);
    if (cost >= least) continue;
    least = cost;
    chosen = *sequences;
  }
  return chosen;
}

}  // namespace

int64_t automatic_micro_batch(const TrainSettings& run) {
  TrainSettings settings = run;
  settings.validate.sample = {};
  settings.profile_every = 0;
  if (settings.recompute_is_auto && settings.memory_limit_bytes > 0) return cheapest_micro_batch(settings);
  constexpr int64_t kActivationBytes = int64_t{4} << 30;
  const std::vector<int64_t> sizes = possible_micro_batches(settings);
  for (auto sequences = sizes.rbegin(); sequences != sizes.rend(); ++sequences) {
    const ArenaPlan arena = plan_training(settings, *sequences).arena;
    const int64_t limit = settings.memory_limit_bytes;
    if (limit > 0 && arena.total_bytes() > limit - kLibraryAllowance) continue;
    if (!has_many_tokens(settings, *sequences) && arena.bytes(MemoryKind::activations) <= kActivationBytes) {
      return *sequences;
    }
  }
  return 1;
}

int64_t largest_fitting_micro_batch(const TrainSettings& settings, int64_t limit_bytes,
                                    const EstimateMemory& estimate) {
  const std::vector<int64_t> sizes = possible_micro_batches(settings);
  for (auto sequences = sizes.rbegin(); sequences != sizes.rend(); ++sequences) {
    throw_if_stopped();
    const TrainMemory memory =
        plan_training(with_recomputation(settings, *sequences, limit_bytes, estimate), *sequences);
    if (memory.arena.total_bytes() > limit_bytes) continue;
    if (estimate(memory).total_bytes() <= limit_bytes) return *sequences;
  }
  return 0;
}

}  // namespace keel
