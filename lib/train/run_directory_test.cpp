#include "keel/train/run_directory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/line_file.h"
#include "support/temp_dir.h"
#include "support/train_settings.h"

namespace keel {
namespace {

using testing::log_settings;

namespace fs = std::filesystem;

class RunDirectoryTest : public ::testing::Test {
 protected:
  std::string run() const { return path_.string(); }

  testing::TempDir folder_;
  fs::path path_ = folder_ / "run";
};

std::vector<int64_t> steps_in(const std::string& file, const char* key) {
  std::vector<int64_t> steps;
  for (const std::string& line : read_lines(file)) {
    const Json json = parse_json(line, file, ErrorKind::format);
    if (json.contains(key)) steps.push_back(json["step"].get<int64_t>());
  }
  return steps;
}

TEST_F(RunDirectoryTest, RewindKeepsWhatALongerUninterruptedRunWouldHave) {
  RunDirectory directory = RunDirectory::create(run(), false);
  for (int64_t step : {1, 4, 8, 10}) directory.log_step({.step = step, .loss = 1});
  directory.log_validation(5, 50, 1);
  directory.log_validation(10, 100, 1);
  directory.sync();
  // The run of 10 steps goes on to 20, validating every 5: step 10 was logged only because it was the last.
  EXPECT_EQ(directory.rewind_metrics(10, LogSchedule(log_settings(20, 4, 5))), 1);
  EXPECT_EQ(steps_in(run() + "/metrics.jsonl", "loss"), (std::vector<int64_t>{1, 4, 8}));
  EXPECT_EQ(steps_in(run() + "/metrics.jsonl", "val_loss"), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(steps_in(run() + "/metrics.before-resume-10.jsonl", "loss"), (std::vector<int64_t>{10}));
}

TEST_F(RunDirectoryTest, RewindMovesLinesBeyondTheCheckpoint) {
  {
    RunDirectory directory = RunDirectory::create(run(), false);
    for (int64_t step = 1; step <= 6; ++step) directory.log_step({.step = step, .loss = 1});
  }
  std::ofstream(run() + "/metrics.jsonl", std::ios::app) << "{\"step\": 7, \"lo";  // torn by a crash
  RunDirectory directory = RunDirectory::open(run());
  EXPECT_EQ(directory.rewind_metrics(4, LogSchedule(log_settings(10, 1, 0))), 2);
  directory.log_step({.step = 5, .loss = NAN});
  directory.sync();
  EXPECT_EQ(steps_in(run() + "/metrics.jsonl", "loss"), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  const std::vector<std::string> lines = read_lines(run() + "/metrics.jsonl");
  EXPECT_NE(lines.back().find("\"loss\":null"), std::string::npos) << lines.back();
}

TEST_F(RunDirectoryTest, RewindKeepsWhatEarlierSettingsLogged) {
  RunDirectory directory = RunDirectory::create(run(), false);
  for (int64_t step = 1; step <= 7; ++step) directory.log_step({.step = step, .loss = 1});
  directory.log_validation(6, 60, 1);
  directory.sync();
  // A run of 7 steps that logged each goes on to 12 with every fourth: step 7 belongs to the past.
  const Json overrides = parse_json(R"([{"from_step": 7, "key": "train.log_every", "before": "1", "after": "4"},
                     {"from_step": 7, "key": "validate.every_steps", "before": "3", "after": "absent"}])",
                                    "run.json", ErrorKind::format);
  EXPECT_EQ(directory.rewind_metrics(7, LogSchedule(log_settings(12, 4, 0), overrides)), 0);
  EXPECT_EQ(directory.rewind_metrics(7, LogSchedule(log_settings(12, 4, 0))), 6);
}

TEST_F(RunDirectoryTest, ProfilesAreRewoundByTheirOwnPeriod) {
  TrainSettings settings = log_settings(12, 1, 0);
  settings.profile_every = 4;
  RunDirectory directory = RunDirectory::create(run(), false);
  directory.write_run_json({{"schema", "keel.run/1"}});
  for (int64_t step : {1, 4, 6, 8}) directory.log_profile({{"step", step}});  // 6: the end of a shorter run
  directory.sync();
  EXPECT_EQ(directory.rewind_profile(6, LogSchedule(settings)), 2);
  EXPECT_EQ(steps_in(run() + "/profile.jsonl", "step"), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(steps_in(run() + "/profile.before-resume-6.jsonl", "step"), (std::vector<int64_t>{6, 8}));
  settings.profile_every = 0;
  EXPECT_EQ(directory.rewind_profile(6, LogSchedule(settings)), 2);
}

TEST_F(RunDirectoryTest, ReplacingTakesProfilesToo) {
  {
    RunDirectory directory = RunDirectory::create(run(), false);
    directory.write_run_json({{"schema", "keel.run/1"}});
    directory.log_profile({{"step", 1}});
  }
  std::ofstream(run() + "/profile.before-resume-6.jsonl") << "{}\n";
  const RunDirectory again = RunDirectory::create(run(), true);
  EXPECT_FALSE(fs::exists(run() + "/profile.jsonl"));
  EXPECT_FALSE(fs::exists(run() + "/profile.before-resume-6.jsonl"));
}

TEST_F(RunDirectoryTest, SamplesOfTheCheckpointsOwnStepStayIfItHasThemBehindIt) {
  TrainSettings settings = log_settings(10, 1, 0);
  settings.validate.sample.every_steps = 2;
  const auto left = [&](bool sampled) {
    RunDirectory directory = RunDirectory::create(run(), true);
    directory.write_run_json({{"schema", "keel.run/1"}});
    for (int64_t step : {2, 3, 4, 6})
      directory.log_samples({{{"step", step}}, {{"step", step}}});  // 3: of a shorter run
    directory.sync();
    directory.rewind_samples(4, sampled, LogSchedule(settings));
    return steps_in(run() + "/samples.jsonl", "step");
  };
  EXPECT_EQ(left(true), (std::vector<int64_t>{2, 2, 4, 4}));
  EXPECT_EQ(steps_in(run() + "/samples.before-resume-4.jsonl", "step"), (std::vector<int64_t>{3, 3, 6, 6}));
  EXPECT_EQ(left(false), (std::vector<int64_t>{2, 2}));
}

TEST_F(RunDirectoryTest, IsHeldByOneProcess) {
  const RunDirectory first = RunDirectory::create(run(), false);
  EXPECT_THROW(RunDirectory::open(run()), Error);
}

TEST_F(RunDirectoryTest, ReplacingRemovesARunAndNothingElse) {
  {
    RunDirectory directory = RunDirectory::create(run(), false);
    directory.write_run_json({{"schema", "keel.run/1"}});
    directory.log_step({.step = 1});
  }
  std::ofstream(run() + "/notes.txt") << "mine";
  fs::create_directories(run() + "/checkpoints/step-00000001");
  const RunDirectory again = RunDirectory::create(run(), true);
  EXPECT_TRUE(fs::exists(run() + "/notes.txt"));
  EXPECT_FALSE(fs::exists(run() + "/metrics.jsonl"));
  EXPECT_TRUE(fs::is_empty(run() + "/checkpoints"));
}

TEST_F(RunDirectoryTest, ReplacingTakesNothingThatOnlyLooksLikeARuns) {
  { RunDirectory::create(run(), false).write_run_json({{"schema", "keel.run/1"}}); }
  fs::create_directories(run() + "/checkpoints/step-00000002");
  for (const char* mine : {"/checkpoints/notes.txt", "/checkpoints/step-best", "/metrics.before-resume-old.jsonl"}) {
    std::ofstream(run() + mine) << "mine";
  }
  const RunDirectory again = RunDirectory::create(run(), true);
  EXPECT_FALSE(fs::exists(run() + "/checkpoints/step-00000002"));
  for (const char* mine : {"/checkpoints/notes.txt", "/checkpoints/step-best", "/metrics.before-resume-old.jsonl"}) {
    EXPECT_TRUE(fs::exists(run() + mine)) << mine;
  }
}

TEST_F(RunDirectoryTest, AForeignRunJsonIsNeverReplaced) {
  fs::create_directories(run() + "/checkpoints/step-00000001");
  for (const char* text : {"{}", "not json", R"({"schema": "other/1"})", "[]"}) {
    std::ofstream(run() + "/run.json") << text;
    std::ofstream(run() + "/metrics.jsonl") << "mine";
    for (const bool replace : {false, true}) {
      try {
        RunDirectory::create(run(), replace);
        ADD_FAILURE() << "accepted " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
      }
    }
    EXPECT_TRUE(fs::exists(run() + "/metrics.jsonl"));
    EXPECT_TRUE(fs::exists(run() + "/checkpoints/step-00000001"));
    EXPECT_FALSE(fs::exists(run() + "/lock"));
  }
}

TEST_F(RunDirectoryTest, WhatAnotherToolMadeIsRefused) {
  fs::create_directories(path_);
  std::ofstream(run() + "/manifest.json") << "{}";
  for (bool replace : {false, true}) EXPECT_THROW(RunDirectory::create(run(), replace), Error);
  EXPECT_FALSE(fs::exists(run() + "/lock"));
}

TEST_F(RunDirectoryTest, AFolderInUseIsJoinedOnlyOnDemand) {
  fs::create_directories(path_);
  RunDirectory::require_creatable(run(), false);
  std::ofstream(run() + "/notes.txt") << "mine";
  try {
    RunDirectory::create(run(), false);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("notes.txt"), std::string::npos) << error.what();
  }
  const RunDirectory forced = RunDirectory::create(run(), true);
  EXPECT_TRUE(fs::exists(run() + "/notes.txt"));
}

TEST_F(RunDirectoryTest, CheckpointsWithoutARunAreNeitherRemovedNorJoined) {
  fs::create_directories(run() + "/checkpoints");
  std::ofstream(run() + "/checkpoints/other.bin") << "mine";
  for (const bool replace : {false, true}) {
    try {
      RunDirectory::create(run(), replace);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
  EXPECT_TRUE(fs::exists(run() + "/checkpoints/other.bin"));
  fs::remove(run() + "/checkpoints/other.bin");
  RunDirectory::create(run(), false);  // what a run leaves that was killed at its start
}

TEST_F(RunDirectoryTest, ForeignRunJsonIsRefused) {
  fs::create_directories(path_);
  std::ofstream(run() + "/run.json") << "{\"schema\": \"other/1\"}";
  try {
    RunDirectory::read_run_json(run());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
  }
}

TEST_F(RunDirectoryTest, RunJsonHasWhatItsReadersUse) {
  fs::create_directories(path_);
  const Json good = parse_json(R"({"schema": "keel.run/1", "config": {}, "created": "2026", "overrides": [],
    "resolved": {"steps": 1, "micro_batch_sequences": 1},
    "data": [{"split": "train", "path": "a.bin", "bytes": 2, "tokens": 1, "hashed": "whole", "xxh3": "0"}]})",
                               "run.json", ErrorKind::format);
  const auto read = [&](const Json& json) {
    std::ofstream(run() + "/run.json") << json_text(json);
    return RunDirectory::read_run_json(run()).root();
  };
  EXPECT_EQ(read(good), good);
  for (const char* pointer : {"/resolved/micro_batch_sequences", "/resolved/steps", "/data/0/split", "/data/0/path",
                              "/data/0/bytes", "/data/0/xxh3", "/data/0", "/created"}) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = Json();
    EXPECT_THROW(read(bad), Error) << pointer;
  }
}

}  // namespace
}  // namespace keel
