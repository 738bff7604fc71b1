#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/base/progress.h"
#include "keel/data/shard_reader.h"
#include "keel/tokenizer/encode.h"
#include "keel/tokenizer/encode_report.h"
#include "keel/tokenizer/test_support.h"

namespace keel::testing {

using Documents = std::vector<std::vector<int64_t>>;

/// Encodes texts with the small model and reads back what came out.
class EncodeTest : public ::testing::Test {
 protected:
  // Runs over files a, b, ... with these contents.
  EncodeResult encode(const std::vector<std::string>& contents) {
    std::vector<InputFile> files;
    for (size_t i = 0; i < contents.size(); ++i) {
      const std::string path = folder_.file(std::string(1, static_cast<char>('a' + i))) + suffix_;
      put_file(path, contents[i]);
      files.push_back({path, static_cast<int64_t>(contents[i].size())});
    }
    out_ = folder_.file("out") + std::to_string(++runs_);
    std::filesystem::create_directories(out_);
    return encode_files(files, *model_m(), options_, out_, no_progress());
  }
  Documents documents(const std::string& shard = "train-00000") const {
    const ShardReader reader(out_ + "/" + shard);
    Documents all;
    for (int64_t k = 0; k < reader.documents(); ++k) reader.read_document(k, all.emplace_back());
    return all;
  }
  // Every output file, by name.
  std::map<std::string, std::string> output() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(out_)) {
      files[entry.path().filename().string()] = get_file(entry.path().string());
    }
    return files;
  }
  std::string manifest_text(const EncodeResult& result, const std::string& tokenizer_file) const {
    return data_manifest_text(manifest_of(result, *model_m(), tokenizer_file), manifest_details(result, options_));
  }
  void expect_failure(std::string_view message, const std::vector<std::string>& contents) {
    expect_error(ErrorKind::format, message, [&] { encode(contents); });
  }

  Scratch folder_;
  EncodeOptions options_;
  std::string suffix_ = ".jsonl";
  std::string out_;
  int runs_ = 0;
};

}  // namespace keel::testing
