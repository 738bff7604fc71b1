#include "keel/eval/data_folder.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::put_file;
using testing::TempDir;

const Task& task(const std::string& name) {
  const std::vector<std::string> names = {name};
  return *find_tasks(names).front();
}

constexpr const char* kArc =
    R"({"id":"q1","question":{"stem":"Why?","choices":[{"text":"a","label":"A"},{"text":"b","label":"B"}]},"answerKey":"B"})"
    "\n";
constexpr const char* kHubArc =
    R"({"id": "q1", "question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"})"
    "\n";
constexpr const char* kSciq =
    R"({"question":"q","distractor3":"c","distractor1":"a","distractor2":"b","correct_answer":"d","support":""})";

std::vector<Json> rows(const TempDir& dir, const std::string& name, const std::string& split) {
  return DataFolder(dir.path().string()).read(task(name), split).rows;
}

TEST(DataFolder, BothLayoutsOfARowAreOne) {
  const TempDir dir;
  put_file(dir / "arc/ARC-Easy/ARC-Easy-Dev.jsonl", kArc);
  put_file(dir / "hub/ARC-Easy/test-00000-of-00001.jsonl", kHubArc);
  put_file(dir / "arc/ARC-Challenge/ARC-Challenge-Dev.jsonl", kArc);
  const std::vector<Json> original = rows(dir, "arc_easy", "validation"), hub = rows(dir, "arc_easy", "test");
  ASSERT_EQ(original.size(), 1U);
  EXPECT_EQ(original[0].dump(), Json::parse(kHubArc).dump());
  EXPECT_EQ(hub, original);
}

TEST(DataFolder, JsonArraysAndLinesWithBlankOnes) {
  const TempDir array, lines;
  put_file(array / "sciq/valid.json", "\xEF\xBB\xBF[\n  " + std::string(kSciq) + ",\n" + kSciq + "\n]\n");
  put_file(lines / "sciq_dev.jsonl", std::string(kSciq) + "\r\n\n" + kSciq);
  EXPECT_EQ(rows(array, "sciq", "validation").size(), 2U);
  EXPECT_EQ(rows(lines, "sciq", "validation"), rows(array, "sciq", "validation"));
}

TEST(DataFolder, ShardsAreOneFileInOrder) {
  const TempDir dir;
  const auto row = [](const char* text) { return std::string("{\"text\": \"") + text + "\"}\n"; };
  put_file(dir / "lambada_openai/test-00001-of-00002.jsonl", row("b"));
  put_file(dir / "lambada_openai/test-00000-of-00002.jsonl", row("a"));
  const std::vector<Json> found = rows(dir, "lambada_openai", "test");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["text"], "a");
}

TEST(DataFolder, SeveralCandidatesAreRefused) {
  const TempDir dir;
  put_file(dir / "a/sciq_test.jsonl", std::string(kSciq) + "\n");
  put_file(dir / "b/sciq_test.jsonl", std::string(kSciq) + "\n");
  KEEL_EXPECT_ERROR(rows(dir, "sciq", "test"), ErrorKind::usage,
                    "two files could be the test split of sciq: a/sciq_test.jsonl and b/sciq_test.jsonl (" +
                        dir.path().string() + "): name with --data a folder that has one of them");
}

TEST(DataFolder, WhatIsMissingIsSaid) {
  const TempDir dir;
  put_file(dir / "sciq_train.jsonl", std::string(kSciq) + "\n");
  put_file(dir / "notes.txt", "nothing\n");
  KEEL_EXPECT_ERROR(
      rows(dir, "lambada_openai", "test"), ErrorKind::io,
      "no file holds the test split of lambada_openai: none whose path has 'lambada' and names 'test' and "
      "whose rows have text, among 2 (" +
          dir.path().string() +
          "): get lambada_test.jsonl as OpenAI published it, or the rows of EleutherAI/lambada_openai, "
          "default");
}

TEST(DataFolder, DamagedRowsAreNamed) {
  const TempDir dir;
  const std::string file = (dir / "sciq_test.jsonl").string();
  put_file(file, std::string(kSciq) + "\n{\"question\": \"q\"}\n");
  KEEL_EXPECT_ERROR(rows(dir, "sciq", "test"), ErrorKind::format, "the row has no field support (" + file + ":2)");
  put_file(file, std::string(kSciq) + "\n{\"question\": \n");
  EXPECT_EQ(testing::error_of([&] { (void)rows(dir, "sciq", "test"); }).kind(), ErrorKind::format);
  put_file(file, "[" + std::string(kSciq) + ", 3]");
  KEEL_EXPECT_ERROR(rows(dir, "sciq", "test"), ErrorKind::format, "the row is no object (" + file + ": row 1)");
}

TEST(DataFolder, AFileThatCannotBeReadIsNotCalledMissing) {
  const TempDir dir;
  const std::string file = (dir / "sciq_test.jsonl").string();
  const auto fails = [&](const std::string& content, const std::string& why) {
    put_file(file, content);
    const Error error = testing::error_of([&] { (void)rows(dir, "sciq", "test"); });
    EXPECT_EQ(error.kind(), ErrorKind::format) << error.what();
    EXPECT_NE(std::string(error.what()).find("no file holds the test split of sciq; one was passed over: "),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  };
  fails("", "the file has no rows (" + file + ")");
  fails("{\"question\": \"\xFF\"}\n", file);
  fails("{\"question\": \n", file);
  fails("\x1F\x8B\x08", file);  // the beginning of a gzip member
  // Nor does another split stand in for it.
  put_file(dir / "sciq_valid.jsonl", std::string(kSciq) + "\n");
  const auto stand_in = [&] {
    return DataFolder(dir.path().string()).read_or_stand_in(task("sciq"), "test", {"validation"}).split;
  };
  EXPECT_EQ(testing::error_of([&] { (void)stand_in(); }).kind(), ErrorKind::format);
  std::filesystem::rename(file, dir / "other_test.jsonl");  // of something else, as far as its name goes
  EXPECT_EQ(stand_in(), "validation");
  std::filesystem::remove(dir / "other_test.jsonl");
  const std::string row = kSciq;
  const std::string question = "\"" + std::string(2 << 20, 'w') + "\"";
  put_file(file, std::string(row).replace(row.find("\"q\""), 3, question) + "\n");
  EXPECT_EQ(rows(dir, "sciq", "test").size(), 1U) << "a first row of 2 MiB";
}

TEST(DataFolder, HiddenFilesAndLoopsOfLinksAreNoTrouble) {
  const TempDir dir;
  put_file(dir / "sciq/test.jsonl", std::string(kSciq) + "\n");
  put_file(dir / ".cache/sciq_test.jsonl", std::string(kSciq) + "\n");
  std::filesystem::create_directory_symlink(dir.path(), dir / "sciq/loop");
  std::filesystem::create_directory_symlink(dir / "sciq", dir / "again");
  EXPECT_EQ(rows(dir, "sciq", "test").size(), 1U);
}

// hellaswag/utils.py of the harness; spec vectors.
TEST(RowProcessing, Hellaswag) {
  const TempDir dir;
  put_file(dir / "hellaswag_val.jsonl",
           R"({"activity_label": "Removing ice", "ctx_a": "[header] How to x [title] Do it. [step] First,  then.",)"
           R"( "ctx_b": "the Man", "endings": [" , runs [substeps] off.", "[step] Go.", "[title] x [title] y",)"
           R"( "a [substeps] b [header] c", "  x   y ", "[a\nb] c"], "label": 2})"
           "\n");
  const Json row = rows(dir, "hellaswag", "validation").at(0);
  EXPECT_EQ(row["query"], "Removing ice: How to x. Do it. First, then. The man");
  EXPECT_EQ(row["choices"], Json::array({", runs off.", " Go.", " x. y", "a b c", "x  y", "[a\nb] c"}));
  EXPECT_EQ(row["label"], "2");
  EXPECT_EQ(row["gold"], 2);
}

}  // namespace
}  // namespace keel
