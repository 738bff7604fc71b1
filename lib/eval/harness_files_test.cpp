#include "keel/eval/harness_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace keel {
namespace {

/// Two documents of sciq and their scores.
struct Scored {
  TaskDocuments documents;
  TaskScores scores;

  explicit Scored(std::vector<std::vector<Score>> requests) {
    const std::vector<std::string> names = {"sciq"};
    documents = {.task = find_tasks(names).front(), .num_fewshot = 2, .rows = 9};
    for (size_t i = 0; i < requests.size(); ++i) {
      documents.documents.push_back({.doc_id = static_cast<int64_t>(i),
                                     .row = Json{{"question", "é?"}},
                                     .target = 3,
                                     .choices = {"a", "bb", "ccc", "dddd"},
                                     .gold = 3,
                                     .context = "\nQuestion: é?\nAnswer:",
                                     .continuations = {" a", " bb", " ccc", " dddd"}});
    }
    scores = score_task(documents, std::move(requests), 100, 1);
  }
};

const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Score> of(const std::vector<double>& values) {
  std::vector<Score> scores;
  for (double value : values) scores.push_back({.log_likelihood = value, .is_greedy = false});
  return scores;
}

TEST(TaskScores, AccuracyByLikelihoodAndByCharacter) {
  // acc: the fourth has the largest; acc_norm: -8/4 beats -3/1 too. Second row: -6 < -5, but -6/4 > -5/1.
  const Scored scored({of({-9, -9, -9, -8}), of({-5, -12, -12, -6})});
  EXPECT_EQ(scored.scores.metrics[0].values, (std::vector<double>{1, 0}));
  EXPECT_EQ(scored.scores.metrics[1].values, (std::vector<double>{1, 1}));
  EXPECT_EQ(scored.scores.metrics[0].value, 0.5);
  EXPECT_EQ(scored.scores.metrics[0].standard_error, 0.5);
  EXPECT_EQ(scored.scores.metrics[1].standard_error, 0.0);
}

TEST(TaskScores, LengthsAreCharacters) {
  Scored scored({of({-5, -6, -90, -90})});
  scored.documents.documents[0].choices = {"aaa", "ééé", "a", "a"};
  scored.documents.documents[0].gold = 0;
  const TaskScores scores = score_task(scored.documents, {of({-5, -6, -90, -90})}, 0, 1);
  EXPECT_EQ(scores.metrics[1].values, std::vector<double>{1}) << "-5/3 > -6/3; by bytes -6/6 would win";
}

TEST(TaskScores, TheFirstOfEqualsWinsAndNanOverAll) {
  const Scored ties({of({-7, -8, -8, -7})});
  EXPECT_EQ(ties.scores.metrics[0].values, std::vector<double>{0});
  const Scored nan({of({-1, -1, -1, kNan}), of({kNan, -1, -1, -0.5})});
  EXPECT_EQ(nan.scores.metrics[0].values, (std::vector<double>{1, 0}));
  EXPECT_EQ(nan.scores.nan, 2);
}

TEST(TaskScores, LambadaCountsGreedyTargets) {
  const std::vector<std::string> names = {"lambada_openai"};
  TaskDocuments documents{.task = find_tasks(names).front(), .rows = 2};
  for (int i = 0; i < 2; ++i) documents.documents.push_back({.target = " x", .continuations = {" x"}});
  const TaskScores scores = score_task(
      documents, {{{.log_likelihood = -1, .is_greedy = true}}, {{.log_likelihood = -3, .is_greedy = false}}}, 0, 1);
  EXPECT_EQ(scores.metrics[0].value, std::exp(2.0));
  EXPECT_EQ(scores.metrics[1].value, 0.5);
  EXPECT_EQ(scores.metrics[0].standard_error, std::nullopt);  // no bootstrap: no standard errors
  EXPECT_EQ(scores.metrics[1].standard_error, std::nullopt);
}

TEST(HarnessFiles, ASampleAsPythonWritesIt) {
  const Scored scored({of({-0.1, -1e-05, -3, -1e16})});
  const std::string line = harness_sample(scored.scores, 0);
  EXPECT_EQ(line.substr(0, line.find(", \"doc_hash\"")),
            R"({"doc_id": 0, "doc": {"question": "é?"}, "target": "3", "arguments": )"
            R"({"gen_args_0": {"arg_0": "\nQuestion: é?\nAnswer:", "arg_1": " a"}, )"
            R"("gen_args_1": {"arg_0": "\nQuestion: é?\nAnswer:", "arg_1": " bb"}, )"
            R"("gen_args_2": {"arg_0": "\nQuestion: é?\nAnswer:", "arg_1": " ccc"}, )"
            R"("gen_args_3": {"arg_0": "\nQuestion: é?\nAnswer:", "arg_1": " dddd"}}, )"
            R"("resps": [[["-0.1", "False"]], [["-1e-05", "False"]], [["-3.0", "False"]], [["-1e+16", "False"]]], )"
            R"("filtered_resps": [["-0.1", "False"], ["-1e-05", "False"], ["-3.0", "False"], ["-1e+16", "False"]], )"
            R"("filter": "none", "metrics": ["acc", "acc_norm"])");
  // sha256 of "3", and of {\n  "question": "é?"\n} by python3 -c 'hashlib.sha256(...)'.
  EXPECT_NE(line.find("\"target_hash\": \"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce\""),
            std::string::npos);
  EXPECT_NE(line.find("\"doc_hash\": \"a6d83e52c3debcd91e02e935e1f8d247d8db76b64c852b1265850c7c552bac6d\""),
            std::string::npos);
  EXPECT_TRUE(line.ends_with(", \"acc\": 0.0, \"acc_norm\": 0.0}")) << line;
}

TEST(HarnessFiles, ResultsOfASingleRowHaveNoStandardError) {
  const Scored scored({of({-9, -9, -9, -8})});
  HarnessRun run{.model = "a/b", .seeds = {0, 1, 2, 3}, .eos = HarnessRun::Token{"</s>", 2}, .keel = Json::object()};
  std::vector<TaskScores> tasks;
  tasks.push_back(scored.scores);
  const Json results = harness_results(run, tasks);
  EXPECT_EQ(results["results"]["sciq"].dump(),
            R"({"name":"sciq","alias":"sciq","sample_len":1,"acc,none":1.0,"acc_stderr,none":"N/A",)"
            R"("acc_norm,none":1.0,"acc_norm_stderr,none":"N/A"})");
  EXPECT_EQ(results["n-samples"]["sciq"].dump(), R"({"original":9,"effective":1})");
  EXPECT_EQ(results["tokenizer_eos_token"].dump(), R"(["</s>","2"])");
  EXPECT_EQ(results["tokenizer_bos_token"].dump(), R"(["None","None"])");
  EXPECT_EQ(results["task_hashes"], Json::object());
}

TEST(HarnessFiles, TheTable) {
  const Scored scored({of({-9, -9, -9, -8}), of({-5, -12, -12, -6})});
  std::vector<TaskScores> tasks;
  tasks.push_back(scored.scores);
  EXPECT_EQ(harness_table(tasks),
            "|Tasks|Version|Filter|n-shot| Metric |   |Value |   |Stderr|\n"
            "|-----|------:|------|-----:|--------|---|-----:|---|-----:|\n"
            "|sciq |      1|none  |     2|acc     |↑  |0.5000|±  |0.5000|\n"
            "|     |       |none  |     2|acc_norm|↑  |1.0000|±  |0.0000|\n");
}

TEST(HarnessFiles, Names) {
  EXPECT_EQ(sanitized_model_name("runs/keel-64"), "runs__keel-64");
  EXPECT_EQ(sanitized_model_name("/a//b:c[1]"), "__a__b__c__1__");
  EXPECT_EQ(harness_date(1.25).size(), std::string("2026-11-29T12-31-52.836006").size());
  EXPECT_EQ(harness_date(1.25).substr(19), ".250000");
}

}  // namespace
}  // namespace keel
