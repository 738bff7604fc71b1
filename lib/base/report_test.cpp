#include "keel/base/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/version.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::TempDir;

Report example(const TempDir& dir) {
  testing::put_file(dir / "in", "abc");
  Report report("keel.test.encode/1", "keel-test", {"keel-test", "encode", "in"});
  report.config()["steps"] = 3;
  set_number(report.results(), "loss", 2.5);
  report.add_input_file(dir / "in");
  report.add_input({.path = "shard", .bytes = 7, .xxh3 = "0011223344556677"});
  return report;
}

TEST(Report, HasTheFieldsOfTheContractInOrder) {
  const TempDir dir;
  log::clear_warnings();
  log::warn("odd");
  const Json object = example(dir).to_json();
  log::clear_warnings();
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"schema", "tool", "version", "command", "started", "finished", "host",
                                             "config", "inputs", "results", "warnings"}));
  EXPECT_EQ(object["schema"].get<std::string>(), "keel.test.encode/1");
  EXPECT_EQ(object["version"].get<std::string>(), version());
  EXPECT_EQ(object["command"].size(), 3U);
  EXPECT_EQ(object["config"]["steps"].get<int>(), 3);
  EXPECT_EQ(object["results"]["loss"].get<double>(), 2.5);
  EXPECT_EQ(object["warnings"][0].get<std::string>(), "odd");
  EXPECT_TRUE(object["host"]["gpus"].is_array());
  EXPECT_EQ(object["inputs"][0]["bytes"].get<int>(), 3);
  EXPECT_EQ(object["inputs"][0]["sha256"].get<std::string>(), sha256_hex("abc"));
  EXPECT_FALSE(object["inputs"][0].contains("xxh3"));
  EXPECT_EQ(json_text(object["inputs"][1]), R"({"path":"shard","bytes":7,"xxh3":"0011223344556677"})");
}

TEST(Report, GoesToAFileOrStdout) {
  const TempDir dir;
  const Report report = example(dir);
  report.write(dir / "report.json");
  const std::string text = testing::get_file(dir / "report.json");
  EXPECT_EQ(parse_json(text, "report", ErrorKind::format)["tool"].get<std::string>(), "keel-test");
  EXPECT_EQ(text.back(), '\n');
  const auto result = testing::run_in_child([&] {
    report.write("-");
    return 0;
  });
  EXPECT_EQ(parse_json(result.out, "stdout", ErrorKind::format)["inputs"].size(), 2U);
  EXPECT_EQ(testing::error_of([&] { report.write(dir / "none/report.json"); }).kind(), ErrorKind::io);
}

TEST(Report, PathsAreCheckedBeforehandAndLeftAlone) {
  const TempDir dir;
  const auto problem = [](const std::filesystem::path& path) {
    return testing::error_of([&] { Report::require_writable(path, false, {}); }).kind();
  };
  EXPECT_EQ(problem(dir / "none/report.json"), ErrorKind::io);
  EXPECT_EQ(problem(dir / "."), ErrorKind::io);
  testing::put_file(dir / "old.json", "kept");
  KEEL_EXPECT_ERROR(Report::require_writable(dir / "old.json", false, {}), ErrorKind::usage,
                    "output exists already (" + (dir / "old.json").string() + "): use --force to replace it");
  Report::require_writable(dir / "old.json", true, {});
  Report::require_writable(dir / "new.json", false, {dir / "old.json", dir / "run", ""});
  Report::require_writable("/dev/null", false, {"/dev"});
  Report::require_writable("-", false, {});
  EXPECT_EQ(testing::get_file(dir / "old.json"), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "."), {}), 1);
}

TEST(Report, WhatACommandReadsAndMakesIsNeverReplaced) {
  namespace fs = std::filesystem;
  const TempDir dir;
  testing::put_file(dir / "in.txt", "kept");
  fs::create_hard_link(dir / "in.txt", dir / "hard");
  fs::create_symlink("in.txt", dir / "link");
  fs::create_directories(dir / "data/sub");
  fs::create_directory_symlink("data", dir / "other");
  const std::vector<fs::path> kept{dir / "in.txt", dir / "data/", dir / "run/"};  // run is still to be made
  for (const char* name : {"in.txt", "./sub/../in.txt", "hard", "link", "data/manifest.json", "data/sub/new.json",
                           "other/new.json", "run/run.json", "data/../run/x", "run"}) {
    const Error error = testing::error_of([&] { Report::require_writable(dir / name, true, kept); });
    EXPECT_EQ(error.kind(), ErrorKind::usage) << name << ": " << error.what();
  }
  Report::require_writable(dir / "runs.json", false, kept);
}

}  // namespace
}  // namespace keel
