#include "keel/eval/harness_output.h"

#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

TEST(HarnessOutput, AFolderAModelOrAFilesName) {
  EXPECT_EQ(HarnessOutput("out", "runs/keel", 0).results().parent_path(), "out/runs__keel");
  EXPECT_EQ(HarnessOutput("a/scores.json", "runs/keel", 0).results().parent_path(), "a");
  EXPECT_TRUE(HarnessOutput("scores.json", "m", 0).results().filename().string().starts_with("scores_19"));
  for (const char* model : {".", "..", "a/.."}) {
    const fs::path results = HarnessOutput("out", model, 0).results();
    EXPECT_EQ(results.parent_path().parent_path(), "out") << results;
    EXPECT_EQ(results, results.lexically_normal());
  }
}

TEST(HarnessOutput, WhatCannotBeWrittenIsKnownBefore) {
  const testing::TempDir dir;
  testing::put_file(dir / "file", "");
  HarnessOutput((dir / "new/folder").string(), "m", 0).require_writable();
  EXPECT_FALSE(fs::exists(dir / "new"));
  for (const char* out : {"file", "file/below", "file/scores.json"}) {
    const Error error = testing::error_of([&] { HarnessOutput((dir / out).string(), "m", 0).require_writable(); });
    EXPECT_EQ(error.kind(), ErrorKind::io) << out;
  }
}

}  // namespace
}  // namespace keel
