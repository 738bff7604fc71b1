#include "keel/train/recomputation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "keel/model/flops.h"

namespace keel {
namespace {

TrainSettings settings_with(int64_t blocks, const std::string& scheme = "keel") {
  Config config(train_schema());
  config.apply(JsonDocument(R"({
    "model": {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 2, "vocab_size": 500},
    "data": {"sequence_length": 32},
    "train": {"steps": 10, "batch_sequences": 12, "recompute": "auto"},
    "optimizer": {"learning_rate": 0.01}
  })",
                            "small.json", ErrorKind::config),
               ConfigLayer::file);
  config.apply_flag("model.num_hidden_layers", std::to_string(blocks), "test");
  config.apply_flag("model.residual_scheme", scheme, "test");
  return resolve_settings(config, {});
}

TrainSettings with_segment(TrainSettings settings, int64_t segment) {
  settings.recompute_segment = segment;
  return settings;
}

int64_t bytes_of_mode(const TrainSettings& settings, int64_t micro, int64_t segment) {
  return estimate_with_allowance(plan_training(with_segment(settings, segment), micro)).total_bytes();
}

double flops_of_mode(const TrainSettings& settings, int64_t segment) {
  return recompute_flops_per_token(settings.model, settings.sequence_length(), segment);
}

/// none and every K.
std::vector<int64_t> all_segments(const TrainSettings& settings) {
  std::vector<int64_t> segments{0};
  for (int64_t blocks = 1; blocks <= settings.model.num_hidden_layers; ++blocks) segments.push_back(2 * blocks);
  return segments;
}

TEST(Recomputation, ModesByName) {
  for (const char* mode : {"none", "branch", "block", "every:2", "every:17"}) {
    EXPECT_EQ(recompute_mode(recompute_segment(mode).value()), mode);
  }
  EXPECT_EQ(recompute_mode(recompute_segment("every:1").value()), "block");
  EXPECT_FALSE(recompute_segment("auto")) << "is no mode but stands for one";
  EXPECT_TRUE(settings_with(2).recompute_is_auto);
}

/// Against every mode there is, branch included, for limits at and beside what each takes.
TEST(Recomputation, AutoComputesLeastAgainOfWhatFits) {
  for (const int64_t blocks : {1, 2, 3, 16, 37}) {
    SCOPED_TRACE(blocks);
    const TrainSettings s = settings_with(blocks);
    constexpr int64_t kMicro = 4;
    std::vector<int64_t> segments = all_segments(s);
    segments.push_back(1);
    std::vector<int64_t> limits;
    for (const int64_t segment : segments) {
      for (const int64_t beside : {-1, 0, 1}) limits.push_back(bytes_of_mode(s, kMicro, segment) + beside);
    }
    for (const int64_t limit : limits) {
      double least = std::numeric_limits<double>::infinity();
      for (const int64_t segment : segments) {
        if (bytes_of_mode(s, kMicro, segment) <= limit) least = std::min(least, flops_of_mode(s, segment));
      }
      const int64_t chosen = automatic_recompute_segment(s, kMicro, limit, estimate_with_allowance);
      if (!std::isfinite(least)) continue;
      EXPECT_LE(bytes_of_mode(s, kMicro, chosen), limit) << recompute_mode(chosen);
      EXPECT_EQ(flops_of_mode(s, chosen), least) << recompute_mode(chosen) << " within " << limit;
    }
  }
}

TEST(Recomputation, WhereNothingFitsTheLeastIsChosen) {
  for (const char* scheme : {"keel", "pre"}) {
    for (const int64_t blocks : {1, 5, 40, 300}) {
      const TrainSettings s = settings_with(blocks, scheme);
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const int64_t segment : all_segments(s)) least = std::min(least, bytes_of_mode(s, 2, segment));
      const int64_t chosen = automatic_recompute_segment(s, 2, 1000, estimate_with_allowance);
      EXPECT_LE(bytes_of_mode(s, 2, chosen), least * 1.001)
          << scheme << ", " << blocks << ": " << recompute_mode(chosen);
    }
  }
}

/// The micro-batch decides how sums are rounded: it follows from settings alone, and nothing that leaves the numbers of a
/// run alone has a part in it.
TEST(Recomputation, TheMicroBatchWithALimitIsTheCheapest) {
  TrainSettings s = settings_with(16);
  const int64_t smallest = bytes_of_mode(s, 1, 2), largest = bytes_of_mode(s, 12, 0);
  for (int64_t limit = smallest - 1000; limit < largest + 100'000; limit += (largest - smallest) / 20) {
    s.memory_limit_bytes = limit;
    double least = std::numeric_limits<double>::infinity();
    for (const int64_t micro : possible_micro_batches(s)) {
      for (const int64_t segment : all_segments(s)) {
        if (bytes_of_mode(s, micro, segment) > limit) continue;
        least = std::min(least, nominal_step_cost(with_segment(s, segment), micro));
      }
    }
    const int64_t micro = automatic_micro_batch(s);
    const TrainSettings chosen = with_recomputation(s, micro, limit, estimate_with_allowance);
    if (std::isfinite(least)) {
      EXPECT_LE(bytes_of_mode(s, micro, chosen.recompute_segment), limit);
      EXPECT_EQ(nominal_step_cost(chosen, micro), least);
    } else {
      EXPECT_EQ(micro, 1);
    }
    TrainSettings profiled = s;
    profiled.profile_every = 3;
    profiled.recompute_segment = 2;
    EXPECT_EQ(automatic_micro_batch(profiled), micro);
  }
}

TEST(Recomputation, WithoutALimitTheMicroBatchIsThatOfNone) {
  TrainSettings s = settings_with(16);
  const int64_t with_auto = automatic_micro_batch(s);
  s.recompute_is_auto = false;
  EXPECT_EQ(automatic_micro_batch(s), with_auto);
}

TEST(Recomputation, OtherModesStay) {
  TrainSettings s = settings_with(16);
  s.recompute_is_auto = false;
  s.recompute_segment = 6;
  EXPECT_EQ(with_recomputation(s, 4, 1000, estimate_with_allowance).recompute_segment, 6);
}

}  // namespace
}  // namespace keel
