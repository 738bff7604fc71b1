#include "keel/eval/documents.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::put_file;
using testing::TempDir;

/// Rows {"x": n}: the question is "n?", the choices are n and 9.
Task tiny_task(const std::string& more = "") {
  const std::string text = R"({
    "task": "tiny", "training_split": "train", "validation_split": "validation", "output_type": "multiple_choice",
    "doc_to_text": "{{x}}?", "doc_to_target": "{{gold}}", "doc_to_choice": "{{[x|string, '9']}}",
    "metric_list": [{"metric": "acc"}], "data": {"origin": "nowhere", "layouts": [{"fields": ["x", "gold"]}]})" +
                           more + "}";
  return parse_task(JsonDocument(text, "tiny.json", ErrorKind::config));
}

std::string rows_of(const std::vector<int>& values) {
  std::string text;
  for (int x : values) text += "{\"x\": " + std::to_string(x) + ", \"gold\": \"0\"}\n";
  return text;
}

std::vector<std::string> contexts_of(const Task& task, const std::filesystem::path& folder,
                                     const PromptOptions& options) {
  DataFolder data(folder.string());
  std::vector<std::string> contexts;
  for (const EvalDocument& document : make_documents(task, data, options).documents)
    contexts.push_back(document.context);
  return contexts;
}

TEST(Documents, ContextsAndContinuations) {
  const TempDir dir;
  put_file(dir / "val.jsonl", "{\"x\": 7, \"gold\": \"1\"}\n");
  DataFolder folder(dir.path().string());
  const Task task = tiny_task(R"(, "description": "D\n", "target_delimiter": "=", "num_fewshot": 0)");
  const TaskDocuments documents = make_documents(task, folder, {});
  ASSERT_EQ(documents.documents.size(), 1U);
  const EvalDocument& document = documents.documents[0];
  EXPECT_EQ(document.context, "D\n7?");
  EXPECT_EQ(document.continuations, (std::vector<std::string>{"=7", "=9"}));
  EXPECT_EQ(document.target, 1);
  EXPECT_EQ(documents.files[0].rows, 1);
  EXPECT_EQ(documents.files[0].sha256.size(), 64U);
}

// golden/eval/sampler_duplicates.json: what lm-evaluation-harness 0.4.13 draws when the pool has copies of the row.
TEST(Documents, ExamplesLeaveOutTheRowItself) {
  const TempDir dir;
  put_file(dir / "train.jsonl", rows_of({0, 0, 0, 1, 2, 0, 3, 0}));
  put_file(dir / "validation.jsonl", rows_of({0, 0, 1, 0, 9}));
  const auto shots = [](const std::vector<int>& values, int question) {
    std::string text;
    for (int x : values) text += std::to_string(x) + "? " + std::to_string(x) + "\n\n";
    return text + std::to_string(question) + "?";
  };
  const std::vector<std::string> expected = {shots({3, 1, 2}, 0), shots({1, 3, 2}, 0), shots({0, 0, 2}, 1),
                                             shots({3, 1, 2}, 0), shots({0, 0, 0}, 9)};
  EXPECT_EQ(contexts_of(tiny_task(), dir.path(), {.num_fewshot = 3}), expected);
  // Only rows that are scored draw.
  EXPECT_EQ(contexts_of(tiny_task(), dir.path(), {.num_fewshot = 3, .samples = {{0, 4}}})[0], expected[0]);
}

TEST(Documents, TheFirstRowsWhereATaskSaysSo) {
  const TempDir dir;
  put_file(dir / "dev.jsonl", rows_of({4, 5, 6}));
  put_file(dir / "test.jsonl", rows_of({1, 2}));
  const Task task =
      tiny_task(R"(, "test_split": "test", "fewshot_split": "dev", "fewshot_config": {"sampler": "first_n"})");
  EXPECT_EQ(contexts_of(task, dir.path(), {.num_fewshot = 2}),
            (std::vector<std::string>{"4? 4\n\n5? 5\n\n1?", "4? 4\n\n5? 5\n\n2?"}));
}

TEST(Documents, LimitsAndSamples) {
  const TempDir dir;
  put_file(dir / "val.jsonl", rows_of({1, 2, 3, 4, 5, 6, 7}));
  const auto count = [&](const PromptOptions& options) { return contexts_of(tiny_task(), dir.path(), options).size(); };
  EXPECT_EQ(count({}), 7U);
  EXPECT_EQ(count({.limit = 3}), 3U);
  EXPECT_EQ(count({.limit = 99}), 7U);
  EXPECT_EQ(count({.limit = 0.3}), 3U);  // ceil(2.1)
  EXPECT_EQ(contexts_of(tiny_task(), dir.path(), {.samples = {{2, 6}}}), (std::vector<std::string>{"3?", "7?"}));
}

TEST(Documents, WhatCannotBeIsNamed) {
  const TempDir dir;
  put_file(dir / "val.jsonl", rows_of({1, 2}) + "{\"x\": 3, \"gold\": 0.5}\n");
  put_file(dir / "train.jsonl", rows_of({1, 2, 3}));
  const auto fails = [&](const PromptOptions& options, const std::string& line) {
    KEEL_EXPECT_ERROR(contexts_of(tiny_task(), dir.path(), options), ErrorKind::usage, line);
  };
  fails({.samples = {{3}}}, "tiny has no row 3: it has 3 (--samples)");
  fails({.num_fewshot = 3}, "3 examples of tiny need 4 rows of the train split, which has 3 (--num-fewshot)");
  KEEL_EXPECT_ERROR(contexts_of(tiny_task(), dir.path(), {}), ErrorKind::format,
                    "the target is neither a whole number nor a text (tiny: row 2)");
}

// api/task.py of the harness: an index, a choice spelt out, or no choice at all.
TEST(Documents, TheRightChoice) {
  const TempDir dir;
  put_file(dir / "val.jsonl",
           "{\"x\": 7, \"gold\": \"1\"}\n{\"x\": 7, \"gold\": 1}\n{\"x\": 8, \"gold\": \"8\"}\n"
           "{\"x\": 7, \"gold\": \"-1\"}\n{\"x\": 7, \"gold\": \"B\"}\n");
  DataFolder folder(dir.path().string());
  const Task task = tiny_task();
  std::vector<int64_t> golds;
  const TaskDocuments documents = make_documents(task, folder, {});
  for (const EvalDocument& document : documents.documents) golds.push_back(document.gold);
  EXPECT_EQ(golds, (std::vector<int64_t>{1, 1, 8, -100, -100}));
  EXPECT_EQ(documents.documents[3].target, "-1");
}

TEST(Documents, SplitsThatStandInAndOtherCountsAreSaid) {
  const TempDir dir;
  put_file(dir / "valid.jsonl", rows_of({1, 2, 3}));
  Task task = tiny_task(R"(, "test_split": "test")");
  task.data.rows = {{"validation", 5}};
  DataFolder folder(dir.path().string());
  const TaskDocuments documents = make_documents(task, folder, {.num_fewshot = 1});
  const std::string file = (dir / "valid.jsonl").string();
  EXPECT_EQ(documents.warnings,
            (std::vector<std::string>{
                "tiny: there is no test split; the validation split (" + file + ") is scored in its place",
                "tiny: the validation split has 3 rows here, 5 as published",
                "tiny: there is no train split; the validation split (" + file + ") gives the examples"}));
  // A row that is scored is not its own example, though the task knows of two splits.
  for (const EvalDocument& document : make_documents(task, folder, {.num_fewshot = 2}).documents) {
    const std::string question = std::to_string(document.row["x"].get<int>()) + "?";
    EXPECT_EQ(document.context.find(question), document.context.size() - question.size()) << document.context;
  }
}

}  // namespace
}  // namespace keel
