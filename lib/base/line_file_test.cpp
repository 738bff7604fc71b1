#include "keel/base/line_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "keel/base/file_lock.h"
#include "keel/base/signals.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::error_of;
using testing::get_file;
using testing::put_file;
using testing::run_in_child;
using testing::TempDir;

TEST(LineAppender, AppendsAndContinues) {
  const TempDir dir;
  {
    LineAppender lines(dir / "f");
    lines.append("one");
    lines.append("");
    EXPECT_EQ(lines.size(), 5);
  }
  LineAppender lines(dir / "f");
  EXPECT_EQ(lines.size(), 5);
  EXPECT_EQ(lines.dropped(), 0);
  lines.append("three");
  EXPECT_EQ(get_file(dir / "f"), "one\n\n");
  lines.sync();
  EXPECT_EQ(get_file(dir / "f"), "one\n\nthree\n");
}

TEST(LineAppender, DropsATornLastLine) {
  const TempDir dir;
  const std::string long_line(10'000, 'x');
  put_file(dir / "f", "one\n" + long_line);
  LineAppender lines(dir / "f");
  EXPECT_EQ(lines.dropped(), 10'000);
  lines.append("two");
  lines.flush();
  EXPECT_EQ(get_file(dir / "f"), "one\ntwo\n");
  put_file(dir / "g", long_line);
  EXPECT_EQ(LineAppender(dir / "g").size(), 0);
  EXPECT_EQ(get_file(dir / "g"), "");
}

TEST(LineAppender, RefusesANewlineInside) {
  const TempDir dir;
  LineAppender lines(dir / "f");
  EXPECT_EQ(error_of([&] { lines.append("a\nb"); }).kind(), ErrorKind::internal);
}

TEST(LineAppender, AFullDiskTearsNoLine) {
  const TempDir dir;
  const auto result = run_in_child([&] {
    install_signal_handlers();
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    LineAppender lines(dir / "f");
    for (int i = 0; i < 30; ++i) lines.append(std::string(99, 'x'));
    EXPECT_EQ(error_of([&] { lines.flush(); }).kind(), ErrorKind::io);
    EXPECT_EQ(error_of([&] { lines.sync(); }).kind(), ErrorKind::io);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(read_lines(dir / "f"), std::vector<std::string>(10, std::string(99, 'x')));
}

TEST(LineAppender, AFullDiskInTheMiddleOfALineCutsItOff) {
  const TempDir dir;
  const auto result = run_in_child([&] {
    install_signal_handlers();
    const rlimit limit{250, 250};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    LineAppender lines(dir / "f");
    for (int i = 0; i < 5; ++i) lines.append(std::string(99, 'x'));
    EXPECT_EQ(error_of([&] { lines.flush(); }).kind(), ErrorKind::io);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(get_file(dir / "f").size(), 200U);
}

TEST(ReadLines, LeavesOutATornOne) {
  const TempDir dir;
  EXPECT_TRUE(read_lines(dir / "none").empty());
  put_file(dir / "f", "a\n\nb\nc");
  EXPECT_EQ(read_lines(dir / "f"), (std::vector<std::string>{"a", "", "b"}));
  write_lines(dir / "f", {"x", "y"});
  EXPECT_EQ(get_file(dir / "f"), "x\ny\n");
}

TEST(FileLock, IsExclusiveAndNamesItsHolder) {
  const TempDir dir;
  EXPECT_FALSE(FileLock::is_held(dir / "lock"));
  {
    const FileLock lock(dir / "lock", "run directory");
    EXPECT_TRUE(FileLock::is_held(dir / "lock"));
    const Error error = error_of([&] { FileLock second(dir / "lock", "run directory"); });
    EXPECT_EQ(error.kind(), ErrorKind::io);
    const std::string start = "run directory is in use by process " + std::to_string(::getpid()) + " on host ";
    EXPECT_EQ(std::string(error.what()).substr(0, start.size()), start);
    EXPECT_NE(std::string(error.what()).find((dir / "lock").string()), std::string::npos);
  }
  EXPECT_FALSE(FileLock::is_held(dir / "lock"));
  const FileLock again(dir / "lock", "run directory");
}

TEST(FileLock, NoticesThatItsFolderIsAnotherOne) {
  const TempDir dir;
  const auto run = dir / "run";
  std::filesystem::create_directory(run);
  const FileLock lock(run / "lock", "the run directory");
  EXPECT_NO_THROW(lock.require_in_place());
  std::filesystem::rename(run, dir / "moved");
  const std::string wanted = "the run directory was removed or replaced while in use (" + run.string() + ")";
  EXPECT_EQ(std::string(error_of([&] { lock.require_in_place(); }).what()), wanted);
  std::filesystem::create_directory(run);
  const FileLock other(run / "lock", "the run directory");
  EXPECT_EQ(std::string(error_of([&] { lock.require_in_place(); }).what()), wanted);
  EXPECT_NO_THROW(other.require_in_place());
}

TEST(FileLock, EndsWithTheProcess) {
  const TempDir dir;
  const auto result = run_in_child([&]() -> int {
    new FileLock(dir / "lock", "x");  // NOLINT: never destroyed, as in a crash
    ::_exit(7);
  });
  EXPECT_EQ(result.code, 7);
  EXPECT_FALSE(FileLock::is_held(dir / "lock"));
}

}  // namespace
}  // namespace keel
