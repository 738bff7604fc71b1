// Metrics, aggregates and standard errors from the log-likelihoods that lm-evaluation-harness itself got, and its
// prompts: equal to its own to the last digits (golden/eval/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "keel/base/hash.h"
#include "keel/base/json.h"
#include "keel/eval/documents.h"
#include "keel/eval/task_scores.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

fs::path data() {
  const char* path = std::getenv("KEEL_TEST_DATA");
  return path == nullptr ? fs::path() : fs::path(path);
}

std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// The benchmarks with the splits that the golden values were made from.
void link_rows(const fs::path& folder) {
  const fs::path rows = data() / "golden/eval/rows", files = data() / "data/eval";
  fs::create_symlink(files / "arc/ARC-Easy/ARC-Easy-Dev.jsonl", folder / "ARC-Easy-Train.jsonl");
  fs::create_symlink(files / "arc/ARC-Easy/ARC-Easy-Test.jsonl", folder / "ARC-Easy-Test.jsonl");
  fs::create_symlink(rows / "hellaswag.train.jsonl", folder / "hellaswag_train.jsonl");
  fs::create_symlink(files / "hellaswag/hellaswag_val.jsonl", folder / "hellaswag_val.jsonl");
  fs::create_symlink(files / "sciq/valid.json", folder / "sciq_test.json");
  fs::create_symlink(files / "lambada/lambada_test.jsonl", folder / "lambada_test.jsonl");
}

class GoldenEval : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenEval, PromptsAndScores) {
  const fs::path file = data() / "golden/eval" / (std::string(GetParam()) + ".jsonl");
  if (data().empty() || !fs::exists(file)) GTEST_SKIP() << "no test data";
  const std::vector<Json> lines = read_lines(file);
  const Json& run = lines[0];
  const testing::TempDir temp;
  link_rows(temp.path());
  DataFolder folder(temp.path().string());
  const std::vector<std::string> names = run["tasks"];
  const Task& task = *find_tasks(names).front();
  PromptOptions options{.num_fewshot = run["options"]["num_fewshot"]};
  if (run["options"].contains("limit")) options.limit = run["options"]["limit"];
  if (run["options"].contains("samples")) {
    options.samples = run["options"]["samples"][task.name].get<std::vector<int64_t>>();
  }
  const TaskDocuments documents = make_documents(task, folder, options);
  ASSERT_EQ(documents.documents.size(), lines.size() - 1);
  EXPECT_EQ(documents.rows, run["n-samples"][task.name]["original"]);

  std::vector<std::vector<Score>> scores;
  for (size_t i = 0; i < documents.documents.size(); ++i) {
    const Json& line = lines[i + 1];
    const std::string hash = sha256_hex(documents.documents[i].context);
    std::vector<Score> of_document;
    if (line.is_array()) {
      EXPECT_EQ(hash.substr(0, 16), line[1].get<std::string>());
      // The compact files have no greedy flags: those of a loglikelihood task are its accuracy.
      for (const Json& ll : line[2]) of_document.push_back({.log_likelihood = ll, .is_greedy = line[3] == 1});
    } else {
      EXPECT_EQ(hash, line["prompt_hash"].get<std::string>());
      for (const Json& request : line["requests"]) {
        of_document.push_back({.log_likelihood = request[1], .is_greedy = request[2]});
      }
    }
    scores.push_back(std::move(of_document));
  }
  const TaskScores result = score_task(documents, std::move(scores), 100'000, 2);
  for (const MetricResult& metric : result.metrics) {
    const std::string& name = metric.metric->name;
    const auto near = [&](double found, const Json& wanted) {
      EXPECT_TRUE(std::abs(found - wanted.get<double>()) <= 1e-12 * std::abs(wanted.get<double>()))
          << name << ": " << found << " != " << wanted;
    };
    near(metric.value, run["results"][task.name][name + ",none"]);
    near(metric.standard_error.value(), run["results"][task.name][name + "_stderr,none"]);
    for (size_t i = 0; i < metric.values.size(); ++i) {
      if (!lines[i + 1].is_object()) continue;
      EXPECT_EQ(metric.values[i], lines[i + 1][name].get<double>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenEval,
                         ::testing::Values("arc_easy.0shot", "arc_easy.25shot", "arc_easy.25shot.spm512",
                                           "arc_easy.2shot.maxlen64", "hellaswag.0shot", "hellaswag.10shot",
                                           "lambada_openai.0shot", "lambada_openai.0shot.nobos", "sciq.0shot",
                                           "full.hellaswag.0shot", "full.sciq.0shot",
                                           "full.lambada_openai.0shot.first500"));

}  // namespace
}  // namespace keel
