#include "keel/checkpoint/checkpoint.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <csignal>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "keel/base/atomic_file.h"
#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "support/numeric.h"
#include "support/scratch.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests
namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << (text)

/// Contents that tell their step by every value.
struct Model {
  std::vector<float> weights, momenta;
  std::vector<FileContent> tokenizer;

  Model(int64_t step, int64_t elements, std::vector<FileContent> tokenizer_files = {})
      : weights(elements, static_cast<float>(step)),
        momenta(elements, static_cast<float>(-step)),
        tokenizer(std::move(tokenizer_files)) {}

  CheckpointContents contents(int64_t step) const {
    const auto n = static_cast<int64_t>(weights.size());
    CheckpointContents contents;
    contents.step = step;
    contents.config_text = R"({"model_type": "keel"})";
    contents.model = {float_tensor("w", {n}, weights)};
    contents.optimizer = {float_tensor("exp_avg.w", {n}, momenta), float_tensor("exp_avg_sq.w", {n}, momenta)};
    contents.trainer = Json{{"step", step}, {"tokens", 10 * step}};
    contents.tokenizer = tokenizer;
    return contents;
  }
};

SavedCheckpoint save(const std::string& run, int64_t step, int64_t elements = 100, const Retention& retention = {}) {
  const Model model(step, elements);
  return save_checkpoint(run, model.contents(step), retention);
}

/// True if the checkpoint verifies and holds that step's values throughout.
bool is_step(const Checkpoint& checkpoint, int64_t step, int64_t elements = 100) {
  std::vector<float> weights(elements), first(elements), second(elements);
  checkpoint.model.read(std::vector<TensorTarget>{{"w", {elements}, weights}});
  checkpoint.optimizer->read(
      std::vector<TensorTarget>{{"exp_avg.w", {elements}, first}, {"exp_avg_sq.w", {elements}, second}});
  const Model model(step, elements);
  return checkpoint.step == step && checkpoint.trainer.at("tokens") == 10 * step && weights == model.weights &&
         first == model.momenta && second == model.momenta;
}

std::vector<int64_t> steps_of(const std::string& run) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(run))
    steps.push_back(entry.damage.empty() ? entry.step : -entry.step);
  return steps;
}

/// Names in RUN/checkpoints that are not checkpoints.
std::vector<std::string> leftovers(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) names.push_back(name);
  }
  return names;
}

TEST(Checkpoint, RoundTrip) {
  const Scratch scratch;
  const Model model(42, 1000, {{"m.json", "tokenizer bytes"}, {"a_config.json", "{}"}});
  const std::string run = scratch.file("run");
  std::vector<std::pair<int64_t, int64_t>> ticks;
  const SavedCheckpoint saved = save_checkpoint(run, model.contents(42), {},
                                                [&](int64_t done, int64_t total) { ticks.emplace_back(done, total); });
  EXPECT_EQ(saved.path, run + "/checkpoints/step-00000042");
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_EQ(saved.bytes, bytes);
  EXPECT_LE(bytes, checkpoint_bytes(model.contents(42)));
  ASSERT_GE(ticks.size(), 6U);
  for (const auto& [done, total] : ticks) EXPECT_LE(done, total);
  EXPECT_EQ(ticks.back().first, bytes);

  const Checkpoint checkpoint = open_checkpoint(saved.path);
  EXPECT_TRUE(is_step(checkpoint, 42, 1000));
  EXPECT_EQ(checkpoint.config_text, R"({"model_type": "keel"})");
  EXPECT_EQ(checkpoint.trainer.at("format_version"), kCheckpointFormatVersion);
  EXPECT_EQ(checkpoint.trainer.at("step"), 42);
  EXPECT_EQ(get_file(checkpoint.tokenizer_path), "tokenizer bytes");
  EXPECT_EQ(get_file(saved.path + "/a_config.json"), "{}");
  EXPECT_TRUE(leftovers(run).empty());
  EXPECT_EQ(open_model_folder(saved.path).tensors.names(), std::vector<std::string>{"w"});
  EXPECT_EQ(open_model_folder(run).path, saved.path);
}

TEST(Checkpoint, SameStepIsReplaced) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  save(run, 3);
  fs::resize_file(run + "/checkpoints/step-00000003/model.safetensors", 10);
  EXPECT_EQ(steps_of(run), std::vector<int64_t>{-3});
  save(run, 3);
  EXPECT_EQ(steps_of(run), std::vector<int64_t>{3});
  EXPECT_TRUE(is_step(*newest_checkpoint(run).checkpoint, 3));
  EXPECT_TRUE(leftovers(run).empty());
}

TEST(Checkpoint, DamageIsFoundAndNamed) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  save(run, 1);
  const std::string path = save(run, 2).path;
  for (const std::string name : {"config.json", "model.safetensors", "optimizer-00000.safetensors", "trainer.json"}) {
    const std::string good = get_file(path + "/" + name);
    const auto expect_damage = [&](const std::string& what) {
      const std::string message = message_of(ErrorKind::format, [&] { (void)open_checkpoint(path); });
      EXPECT_HAS(message, what);
      EXPECT_HAS(message, name);
      const NewestCheckpoint newest = newest_checkpoint(run);
      ASSERT_TRUE(newest.checkpoint.has_value());
      EXPECT_TRUE(is_step(*newest.checkpoint, 1));
      ASSERT_EQ(newest.skipped.size(), 1U);
      EXPECT_HAS(newest.skipped[0].damage, name);
    };
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    scratch.write("run/checkpoints/step-00000002/" + name, bad);
    EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1, 2}));  // the size is right
    expect_damage("XXH3");
    scratch.write("run/checkpoints/step-00000002/" + name, good.substr(1));
    EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1, -2}));
    expect_damage("bytes");
    fs::remove(path + "/" + name);
    expect_damage("missing");
    scratch.write("run/checkpoints/step-00000002/" + name, good);
  }
  EXPECT_TRUE(is_step(*newest_checkpoint(run).checkpoint, 2));
  ASSERT_TRUE(open_model_folder(run).warnings.empty());
  fs::remove(path + "/manifest.json");
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(open_model_folder(run).warnings.size(), 1U);
}

TEST(Checkpoint, NewerFormatsAreRefused) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  const std::string path = save(run, 2).path;
  std::string manifest = get_file(path + "/manifest.json");
  const std::string version = R"("format_version": 1)";
  ASSERT_TRUE(has(manifest, version));
  manifest.replace(manifest.find(version), version.size(), R"("format_version": 2)");
  scratch.write("run/checkpoints/step-00000002/manifest.json", manifest);
  EXPECT_HAS(message_of(ErrorKind::format, [&] { (void)open_checkpoint(path); }), "format 2 is not known");
}

TEST(Checkpoint, NothingThere) {
  const Scratch scratch;
  EXPECT_TRUE(list_checkpoints(scratch.file("none")).empty());
  EXPECT_FALSE(newest_checkpoint(scratch.file("none")).checkpoint.has_value());
  message_of(ErrorKind::io, [&] { (void)open_checkpoint(scratch.file("none")); });
  fs::create_directories(scratch.file("run/checkpoints/step-7"));  // not a name of ours
  EXPECT_TRUE(list_checkpoints(scratch.file("run")).empty());
  EXPECT_HAS(message_of(ErrorKind::format, [&] { (void)open_model_folder(scratch.file("run")); }),
             "no complete checkpoint");
}

TEST(Retention, KeepsWhatWasAsked) {
  const auto kept = [](const Retention& retention) {
    const Scratch scratch;
    for (int64_t step = 1; step <= 10; ++step) save(scratch.file("run"), step, 10, retention);
    EXPECT_TRUE(leftovers(scratch.file("run")).empty());
    return steps_of(scratch.file("run"));
  };
  EXPECT_EQ(kept({}).size(), 10U);
  EXPECT_EQ(kept({.keep_last = 1}), std::vector<int64_t>{10});
  EXPECT_EQ(kept({.keep_last = 3}), (std::vector<int64_t>{8, 9, 10}));
  EXPECT_EQ(kept({.keep_last = 2, .keep_every = 4}), (std::vector<int64_t>{4, 8, 9, 10}));
  EXPECT_EQ(kept({.keep_last = 1, .keep = {2, 5}}), (std::vector<int64_t>{2, 5, 10}));
}

TEST(Retention, LeavesDamagedOnesAndReportsRemovals) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  save(run, 1, 10);
  const std::string damaged = save(run, 2, 10).path;
  save(run, 3, 10);
  fs::remove(damaged + "/manifest.json");
  const SavedCheckpoint saved = save(run, 4, 10, {.keep_last = 2});
  EXPECT_EQ(saved.removed, std::vector<std::string>{run + "/checkpoints/step-00000001"});
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{-2, 3, 4}));
}

TEST(Checkpoint, SpaceIsCheckedFirst) {
  const Scratch scratch;
  const std::string message =
      message_of(ErrorKind::io, [&] { require_free_space(scratch.file("run"), int64_t{1} << 60); });
  EXPECT_HAS(message, "1152921504606846976 bytes");
  EXPECT_HAS(message, "are free");
  EXPECT_NO_THROW(require_free_space(scratch.file("run"), 1000));
}

/// Runs `body` in a child process; returns its wait status.
template <class Body>
int in_child(Body body, int64_t kill_after_us = -1) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  if (kill_after_us >= 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(kill_after_us));
    ::kill(child, SIGKILL);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// KB-38: a limit on the file size stands for a full disk.
TEST(Checkpoint, FullDiskLeavesTheEarlierOnes) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  constexpr int64_t kElements = 100000;  // 400,000 bytes of weights
  save(run, 2, kElements);
  const std::string before = xxh3_of_file(run + "/checkpoints/step-00000002/model.safetensors");
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 307200, 307200 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(run, 4, kElements);
    } catch (const Error& error) {
      const std::string message = error.what();
      ::_exit(error.kind() == ErrorKind::io && has(message, "File too large") && has(message, "model.safetensors") ? 7
                                                                                                                   : 8);
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(steps_of(run), std::vector<int64_t>{2});
  EXPECT_TRUE(leftovers(run).empty());  // what it wrote is gone already
  EXPECT_EQ(xxh3_of_file(run + "/checkpoints/step-00000002/model.safetensors"), before);
}

/// Killed at random moments, retention included: what has a final name is complete, the newest complete one never gets
/// older, and the next save clears what was left.
TEST(Checkpoint, KilledAtAnyMoment) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  constexpr int64_t kElements = 300000;
  save(run, 1, kElements, {.keep_last = 2});
  Random random(5);
  int64_t newest = 1;
  int killed = 0;
  size_t before = 1;         // checkpoints
  double window_us = 50000;  // follows the machine's speed, so that about half of the children are killed
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    const int64_t step = newest + 1;
    const int status = in_child(
        [&] {
          for (int64_t s = step; s < step + 2; ++s) save(run, s, kElements, {.keep_last = 2});
        },
        random.integer(0, static_cast<int64_t>(window_us)));
    killed += WIFSIGNALED(status);
    window_us *= WIFSIGNALED(status) ? 1.1 : 0.9;
    const std::vector<CheckpointEntry> entries = list_checkpoints(run);
    ASSERT_GE(entries.size(), 1U);
    // A kill between the rename of a checkpoint and the removal of old ones leaves one more.
    ASSERT_LE(entries.size(), WIFSIGNALED(status) ? std::max<size_t>(before, 2) + 1 : 2);
    before = entries.size();
    for (const CheckpointEntry& entry : entries) {
      ASSERT_EQ(entry.damage, "");
      ASSERT_TRUE(is_step(open_checkpoint(entry.path), entry.step, kElements));
    }
    ASSERT_GE(entries.back().step, newest);
    newest = entries.back().step;
    for (const std::string& name : leftovers(run)) EXPECT_TRUE(is_temporary_name(name)) << name;
  }
  EXPECT_GT(killed, 10);
  save(run, newest + 1, kElements, {.keep_last = 2});
  EXPECT_TRUE(leftovers(run).empty());
  EXPECT_EQ(steps_of(run).size(), 2U);
}

TEST(Checkpoint, KilledWhileReplacing) {
  const Scratch scratch;
  const std::string run = scratch.file("run");
  constexpr int64_t kElements = 100000;
  save(run, 1, kElements);
  Random random(6);
  for (int trial = 0; trial < 30; ++trial) {
    in_child([&] { save(run, 1, kElements); }, random.integer(0, 30000));
    ASSERT_EQ(steps_of(run), std::vector<int64_t>{1});
    ASSERT_TRUE(is_step(open_checkpoint(run + "/checkpoints/step-00000001"), 1, kElements));
  }
  save(run, 1, kElements);
  EXPECT_TRUE(leftovers(run).empty());
}

}  // namespace
}  // namespace keel
