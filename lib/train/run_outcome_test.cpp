#include "keel/train/run_outcome.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

namespace keel {
namespace {

TrainSettings settings() {
  TrainSettings s;
  s.steps = 30;
  s.batch_sequences = 1;
  s.data.sequence_length = 8;
  return s;
}

TEST(RunOutcome, AValidationOfAnEarlierStepSaysSo) {
  RunOutcome outcome;
  outcome.step = 25;
  outcome.final_loss = 4.5;
  outcome.val_loss = 4.7359;
  outcome.val_step = 20;
  EXPECT_EQ(outcome_text(outcome, settings(), "r"),
            "r: completed after 25 of 30 steps, loss 4.5000, validation loss 4.7359 (step 20)");
  EXPECT_EQ(outcome_json(outcome, settings())["val_step"], 20);
  outcome.step = 20;
  EXPECT_EQ(outcome_text(outcome, settings(), "r"),
            "r: completed after 20 of 30 steps, loss 4.5000, validation loss 4.7359");
}

TEST(RunOutcome, SaysWhereAnInterruptedRunGoesOn) {
  RunOutcome outcome;
  outcome.status = RunStatus::interrupted;
  outcome.signal = SIGINT;
  outcome.step = 20;
  outcome.final_loss = 4.5;
  const std::string how = "r: interrupted by SIGINT after 20 of 30 steps, loss 4.5000; ";
  EXPECT_EQ(outcome_text(outcome, settings(), "r"), how + "not saved: --resume begins again");
  outcome.checkpoints = {"checkpoints/step-00000010"};
  EXPECT_EQ(outcome_text(outcome, settings(), "r"),
            how + "not saved: --resume continues from checkpoints/step-00000010");
  outcome.checkpoints.push_back("checkpoints/step-00000020");
  EXPECT_EQ(outcome_text(outcome, settings(), "r"), how + "--resume continues");
}

TEST(RunOutcome, HugeLossesAreShort) {
  EXPECT_EQ(loss_text(21768587.4646), "2.177e+07");
  EXPECT_EQ(loss_text(99.5), "99.5000");
}

}  // namespace
}  // namespace keel
