#include "keel/train/trainer_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"

namespace keel {
namespace {

Checkpoint checkpoint_with(const Json& trainer) {
  Checkpoint checkpoint;
  checkpoint.path = "RUN/checkpoints/step-00000004";
  checkpoint.step = 4;
  checkpoint.trainer = trainer;
  return checkpoint;
}

TEST(TrainerState, ReadsWhatItWrote) {
  const TrainerState written{.step = 4,
                             .tokens = 256,
                             .data_position = 16,
                             .batch_sequences = 4,
                             .micro_batch_sequences = 2,
                             .seed = UINT64_MAX,
                             .seconds = 1.25,
                             .save_seconds = 0.5,
                             .validated = false,
                             .sampled = false,
                             .loss = 3.5,
                             .val_loss = 4.5,
                             .val_step = 3};
  const TrainerState read = trainer_state(checkpoint_with(trainer_state_json(written)));
  EXPECT_EQ(read.tokens, 256);
  EXPECT_EQ(read.data_position, 16);
  EXPECT_EQ(read.micro_batch_sequences, 2);
  EXPECT_EQ(read.seed, UINT64_MAX);
  EXPECT_EQ(read.seconds, 1.25);
  EXPECT_EQ(read.save_seconds, 0.5);
  EXPECT_FALSE(read.validated);
  EXPECT_FALSE(read.sampled);
  EXPECT_EQ(read.loss, 3.5);
  EXPECT_TRUE(std::isnan(read.grad_norm));
  EXPECT_EQ(read.val_loss, 4.5);
  EXPECT_EQ(read.val_step, 3);
}

TEST(TrainerState, ValuesOfAnotherTypeAreRefusedByName) {
  const Json good = trainer_state_json({.step = 4});
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{{"seconds", "long"},
                                                                                      {"validated", 1},
                                                                                      {"processes", -1},
                                                                                      {"data_position", 1.5},
                                                                                      {"seed", "x"},
                                                                                      {"val_loss", "low"},
                                                                                      {"val_step", "last"},
                                                                                      {"loss", Json()},
                                                                                      {"format_version", 99},
                                                                                      {"step", 3}}) {
    Json bad = good;
    bad[key] = value;
    try {
      trainer_state(checkpoint_with(bad));
      ADD_FAILURE() << "accepted " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      EXPECT_NE(std::string(error.what()).find("trainer.json"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(trainer_state(checkpoint_with(Json::array())), Error);
}

}  // namespace
}  // namespace keel
