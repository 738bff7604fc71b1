#include "keel/eval/task.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace keel {
namespace {

Task parse(const std::string& text) {
  return parse_task(JsonDocument(text, "task.json", ErrorKind::config));
}

const std::string kTask = R"({"task": "t", "test_split": "test", "output_type": "loglikelihood", "doc_to_text": "{{a}}",
 "doc_to_target": "b", "metric_list": [{"metric": "acc"}], "data": {"layouts": [{"fields": ["a"]}]})";

TEST(Task, BuiltInOnesAreComplete) {
  std::vector<std::string> names;
  for (const Task& task : built_in_tasks()) names.push_back(task.name);
  EXPECT_EQ(names, (std::vector<std::string>{"arc_easy", "hellaswag", "lambada_openai", "sciq"}));
  for (const Task& task : built_in_tasks()) {
    EXPECT_FALSE(task.data.origin.empty()) << task.name;
    EXPECT_TRUE(task.data.rows.contains(task.evaluated_split())) << task.name;
  }
}

TEST(Task, NamesAndTags) {
  const auto found = [](const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const Task* task : find_tasks(names)) out.push_back(task->name);
    return out;
  };
  EXPECT_EQ(found({"sciq", "ai2_arc", "sciq", "arc_easy"}), (std::vector<std::string>{"sciq", "arc_easy"}));
  KEEL_EXPECT_ERROR(found({"arc_esay"}), ErrorKind::usage,
                    "there is no task or tag 'arc_esay' (--tasks): did you mean 'arc_easy'?");
}

TEST(Task, SplitsOfExamples) {
  Task task = parse(kTask + "}");
  EXPECT_EQ(task.example_split(), "test");
  EXPECT_FALSE(task.excludes_own_row());
  task = parse(kTask + R"(, "validation_split": "val", "training_split": "train"})");
  EXPECT_EQ(task.example_split(), "train");
  EXPECT_EQ(task.evaluated_split(), "test");
  EXPECT_EQ(parse(kTask + R"(, "fewshot_split": "dev"})").example_split(), "dev");
  EXPECT_TRUE(parse(kTask + R"(, "fewshot_split": "test"})").excludes_own_row());
}

TEST(Task, AFieldsNameAloneIsTheField) {
  const Task task = parse(kTask + "}");
  EXPECT_EQ(task.target.text(Json::parse(R"({"a": "x", "b": "y"})")), "y");
  EXPECT_EQ(task.target.text(Json::parse(R"({"a": "x", "b": 3})")), "3");
  EXPECT_EQ(task.target.text(Json::parse(R"({"a": "x"})")), "b");  // no field: a text like any other
}

TEST(Task, WrongDefinitionsAreRefused) {
  const auto refused = [](const std::string& text, const std::string& message) {
    const Error error = testing::error_of([&] { (void)parse(text); });
    EXPECT_EQ(error.kind(), ErrorKind::config) << text;
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  };
  refused("[]", "must be an object");
  refused(R"({"task": "t"})", "a task needs a test_split or a validation_split");
  refused(kTask + R"(, "doc_to_texts": "x"})", "unknown key doc_to_texts (task.json:2:");
  refused(kTask + R"(, "doc_to_choice": "{{[a]}}"})", "doc_to_choice belongs to output_type multiple_choice");
  refused(kTask + R"(, "process_docs": "helaswag"})", "did you mean 'hellaswag'?");
  refused(kTask + R"(, "fewshot_config": {"sampler": "last_n"}})", "fewshot_config is unknown");
  refused(kTask + R"(, "description": 3})", "description must be a text");
  std::string bad = kTask;
  refused(bad.replace(bad.find("\"acc\""), 5, "\"acc_norm\"") + "}", "no metric 'acc_norm' for this output_type");
  bad = kTask;
  refused(bad.replace(bad.find("{{a}}"), 5, "{{a") + "}", "has no }}");
  bad = kTask;
  refused(bad.replace(bad.find("fields"), 6, "field") + "}", "a layout needs fields");
}

}  // namespace
}  // namespace keel
