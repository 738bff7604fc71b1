#include "keel/train/train_memory.h"

#include <gtest/gtest.h>

#include "keel/base/error.h"

namespace keel {
namespace {

TrainSettings small_settings() {
  Config config(train_schema());
  config.apply(JsonDocument(R"({
    "model": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 500},
    "data": {"sequence_length": 32},
    "train": {"steps": 10, "batch_sequences": 12, "micro_batch_sequences": 2},
    "optimizer": {"learning_rate": 0.01}
  })",
                            "small.json", ErrorKind::config),
               ConfigLayer::file);
  return resolve_settings(config, {});
}

TEST(TrainMemory, MicroBatchesAreTheDivisorsOfTheBatch) {
  TrainSettings s = small_settings();
  EXPECT_EQ(possible_micro_batches(s), (std::vector<int64_t>{1, 2, 3, 4, 6, 12}));
  s.batch_sequences = 49;
  EXPECT_EQ(possible_micro_batches(s), (std::vector<int64_t>{1, 7, 49}));
  s.batch_sequences = 1;
  EXPECT_EQ(possible_micro_batches(s), (std::vector<int64_t>{1}));
}

TEST(TrainMemory, LargestIsTheLastThatFitsToTheByte) {
  const TrainSettings s = small_settings();
  for (const int64_t sequences : possible_micro_batches(s)) {
    const int64_t bytes = estimate_gpu_memory(plan_training(s, sequences)).total_bytes();
    EXPECT_EQ(largest_fitting_micro_batch(s, bytes, estimate_gpu_memory), sequences);
    EXPECT_LT(largest_fitting_micro_batch(s, bytes - 1, estimate_gpu_memory), sequences);
  }
  EXPECT_EQ(largest_fitting_micro_batch(s, 1000, estimate_gpu_memory), 0);
}

/// The same arrays whatever the device: fp32 masters, gradients, optimiser state, activations, each in the arena.
TEST(TrainMemory, GpusTakeTheArenaAndTheAllowance) {
  const TrainSettings s = small_settings();
  const TrainMemory memory = plan_training(s, 4);
  const MemoryEstimate gpu = estimate_gpu_memory(memory);
  EXPECT_EQ(gpu.arena_bytes, memory.arena.total_bytes());
  EXPECT_EQ(gpu.operation_bytes, memory.arena.beside().total_bytes());
  EXPECT_EQ(gpu.library_bytes, kCudaContextBytes);
  EXPECT_EQ(estimate_device_memory(memory).library_bytes, kCudaCodeBytes);
  const int64_t parameters = 4 * memory.layout.size;
  EXPECT_GE(memory.arena.bytes(MemoryKind::weights), parameters);
  EXPECT_GE(memory.arena.bytes(MemoryKind::gradients), parameters);
  EXPECT_GE(memory.arena.bytes(MemoryKind::optimizer), 2 * parameters);
}

TEST(TrainMemory, CpusAddWhatTheProcessHoldsAndEachThreadTakes) {
  const TrainSettings s = small_settings();
  const TrainMemory memory = plan_training(s, 4);
  Context one(1), two(2);
  const MemoryEstimate nothing_held = estimate_memory(one, memory, s, 0);
  EXPECT_EQ(nothing_held.arena_bytes, memory.arena.total_bytes());
  EXPECT_EQ(estimate_memory(one, memory, s, 5'000'000).library_bytes, nothing_held.library_bytes + 5'000'000);
  EXPECT_GT(estimate_memory(two, memory, s, 0).library_bytes, nothing_held.library_bytes);
}

/// Passes forward and back over a micro-batch of token 1.
void run_passes(Context& ctx, const TrainSettings& s, const TrainMemory& memory) {
  const Arena arena(memory.arena);
  const int64_t N = memory.micro_batch_sequences * s.sequence_length(), P = memory.layout.size;
  for (int64_t i = 0; i < N; ++i) {
    arena.at(memory.tokens)[i] = arena.at(memory.targets)[i] = 1;
    arena.at(memory.positions)[i] = static_cast<int32_t>(i % s.sequence_length());
  }
  for (int64_t i = 0; i <= memory.micro_batch_sequences; ++i) {
    arena.at(memory.cu_seqlens)[i] = static_cast<int32_t>(i * s.sequence_length());
  }
  const FlatBatch batch{.tokens = {arena.at(memory.tokens), {N}},
                        .targets = {arena.at(memory.targets), {N}},
                        .positions = {arena.at(memory.positions), {N}},
                        .weights = {arena.at(memory.batch_weights), {N}},
                        .cu_seqlens = {arena.at(memory.cu_seqlens), {memory.micro_batch_sequences + 1}}};
  const ParameterBuffers parameters{.layout = &memory.layout,
                                    .weights = {arena.at(memory.weights), {P}},
                                    .gradients = {arena.at(memory.gradients), {P}}};
  Decoder decoder(ctx, s.model, memory.decoder, arena);
  for (const bool accumulate : {false, true}) {
    EXPECT_TRUE(decoder.forward_backward(parameters, batch, accumulate, {arena.at(memory.scalars), {1}}));
  }
}

TEST(TrainMemory, EveryProductOfAStepIsPlanned) {
  TrainSettings s = small_settings();
  for (const int64_t length : {32, 128, 256}) {
    s.data.sequence_length = length;
    for (const int threads : {1, 2, 3}) {
      Context ctx(threads);
      const TrainMemory memory = plan_training(s, 6);
      const int64_t planned = estimate_memory(ctx, memory, s, 0).total_bytes();
      run_passes(ctx, s, memory);
      EXPECT_EQ(estimate_memory(ctx, memory, s, 0).total_bytes(), planned)
          << threads << " threads, sequences of " << length;
    }
  }
}

/// Profiles must not change a run's numbers, so they have no part in its micro-batch.
TEST(TrainMemory, ProfilesTakeWorkspaceAndLeaveTheMicroBatch) {
  TrainSettings plain = small_settings();
  TrainSettings profiled = plain;
  profiled.profile_every = 5;
  const TrainMemory a = plan_training(plain, 4), b = plan_training(profiled, 4);
  EXPECT_FALSE(a.profile);
  ASSERT_TRUE(b.profile);
  const int64_t observed_gradient = 4 * 32 * 64 * int64_t{sizeof(float)};
  EXPECT_GE(b.arena.bytes(MemoryKind::workspace) - a.arena.bytes(MemoryKind::workspace), observed_gradient);
  EXPECT_EQ(b.arena.bytes(MemoryKind::activations), a.arena.bytes(MemoryKind::activations));
  plain.memory_limit_bytes = profiled.memory_limit_bytes = a.arena.total_bytes() + kLibraryAllowance;
  EXPECT_EQ(automatic_micro_batch(plain), 4);
  EXPECT_EQ(automatic_micro_batch(profiled), 4);
}

TEST(TrainMemory, WithoutAnOptimiserThereIsNoStateOfIt) {
  TrainSettings s = small_settings();
  s.keeps_optimizer = false;
  EXPECT_EQ(plan_training(s, 4).arena.bytes(MemoryKind::optimizer), 0);
}

}  // namespace
}  // namespace keel
