#include "keel/train/data_identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "keel/base/signals.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::TempDir;

/// A run on headerless uint16 tokens, for files of any size without writing them.
RunSetup setup_of(const std::filesystem::path& bin) {
  Config config(train_schema());
  config.apply(JsonDocument(R"({"model": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 50}, "data": {"sequence_length": 8, "format": "nanogpt"},
    "train": {"steps": 1, "batch_sequences": 1}, "optimizer": {"learning_rate": 0.01}})",
                            "x", ErrorKind::config),
               ConfigLayer::file);
  config.apply_set("data.path=" + bin.string());
  return prepare_run(config, "");
}

void overwrite(const std::filesystem::path& path, int64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file << bytes;
}

TEST(DataIdentity, SmallDataIsHashedWhole) {
  const TempDir dir;
  testing::put_file(dir / "a.bin", std::string(2000, '\0'));
  const Json before = data_identity(setup_of(dir / "a.bin"));
  EXPECT_EQ(before[0]["hashed"].get<std::string>(), "whole");
  EXPECT_EQ(before[0]["xxh3"].get<std::string>(), xxh3_of_file(dir / "a.bin"));
  overwrite(dir / "a.bin", 1234, std::string(1, '\1'));
  try {
    require_same_data(before, data_identity(setup_of(dir / "a.bin")));
    FAIL() << "a changed byte went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    EXPECT_NE(std::string(error.what()).find("a.bin"), std::string::npos) << error.what();
  }
}

TEST(DataIdentity, LargeDataIsSampledFromItsFirstToItsLastByte) {
  const TempDir dir;
  testing::put_file(dir / "a.bin", "");
  const int64_t bytes = (int64_t{1} << 30) + 2;
  std::filesystem::resize_file(dir / "a.bin", static_cast<uintmax_t>(bytes));  // sparse
  const Json before = data_identity(setup_of(dir / "a.bin"));
  EXPECT_EQ(before[0]["hashed"].get<std::string>(), "sample");
  RunSetup setup = setup_of(dir / "a.bin");
  setup.identity = before;
  setup.identity.push_back(before[0]);
  const std::vector<ReportInput> inputs = report_inputs(setup);
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].bytes, bytes);
  EXPECT_EQ(inputs[0].xxh3, "") << "a sample's hash is no file's";
  require_same_data(before, data_identity(setup_of(dir / "a.bin")));
  for (const int64_t offset : {int64_t{0}, bytes - 1, bytes / 63}) {
    overwrite(dir / "a.bin", offset, std::string(1, '\1'));
    EXPECT_THROW(require_same_data(before, data_identity(setup_of(dir / "a.bin"))), Error) << offset;
    overwrite(dir / "a.bin", offset, std::string(1, '\0'));
  }
  require_same_data(before, data_identity(setup_of(dir / "a.bin")));
}

TEST(DataIdentity, HashingHeedsSignals) {
  const TempDir dir;
  testing::put_file(dir / "a.bin", std::string(2000, '\0'));
  const RunSetup setup = setup_of(dir / "a.bin");
  request_stop(2);
  EXPECT_THROW(data_identity(setup), Stopped);
  EXPECT_THROW(require_readable_start(setup), Stopped);
  clear_stop();
}

}  // namespace
}  // namespace keel
