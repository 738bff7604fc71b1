#include "keel/base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "keel/base/signals.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::get_file;
using testing::put_file;
using testing::run_in_child;
using testing::TempDir;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.write("hello ");
  file.write(std::string(3'000'000, 'x'));
  EXPECT_FALSE(fs::exists(dir / "f"));
  EXPECT_EQ(file.size(), 3'000'006);
  file.write_at(0, "HELLO", 5);
  file.commit();
  EXPECT_EQ(get_file(dir / "f"), "HELLO " + std::string(3'000'000, 'x'));
  EXPECT_EQ(names_in(dir.path()), Names{"f"});
}

TEST(AtomicFile, WithoutCommitTheOldOneStays) {
  const TempDir dir;
  put_file(dir / "f", "old");
  {
    AtomicFile file(dir / "f");
    file.write("new");
  }
  EXPECT_EQ(get_file(dir / "f"), "old");
  EXPECT_EQ(names_in(dir.path()), Names{"f"});
  write_file_atomically(dir / "f", "new");
  EXPECT_EQ(get_file(dir / "f"), "new");
}

TEST(AtomicFile, FollowsSymbolicLinks) {
  const TempDir dir;
  make_directories(dir / "real");
  fs::create_symlink("real/f", dir / "link");
  write_file_atomically(dir / "link", "text");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(get_file(dir / "real/f"), "text");
}

TEST(AtomicFile, WritesPipesAndDevicesDirectly) {
  write_file_atomically("/dev/null", "text");
  struct stat status {};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  KEEL_EXPECT_ERROR(write_file_atomically("/dev/full", "text"), ErrorKind::io,
                    "cannot write: No space left on device (/dev/full)");
}

TEST(AtomicFile, RefusesFoldersAndMissingParents) {
  const TempDir dir;
  EXPECT_EQ(error_of([&] { AtomicFile file(dir.path()); }).kind(), ErrorKind::io);
  KEEL_EXPECT_ERROR(AtomicFile(dir / "none/f"), ErrorKind::io,
                    "cannot create: No such file or directory (" + (dir / "none/f").string() + ")");
}

TEST(AtomicFile, ChecksItsUse) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.write("abc");
  EXPECT_EQ(error_of([&] { file.write_at(1, "xyz", 3); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { file.write_at(-1, "x", 1); }).kind(), ErrorKind::internal);
  file.commit();
  EXPECT_EQ(error_of([&] { file.commit(); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { file.write("x"); }).kind(), ErrorKind::internal);
}

TEST(AtomicFile, LongNamesWork) {
  const TempDir dir;
  const std::string name(255, 'n');
  write_file_atomically(dir / name, "text");
  EXPECT_EQ(get_file(dir / name), "text");
}

/// The same with a file that may not grow beyond 100 kB and with a file system of that size.
void expect_clean_failure(const fs::path& folder, const std::string& reason) {
  const fs::path path = folder / "f";
  put_file(path, "old");
  KEEL_EXPECT_ERROR(write_file_atomically(path, std::string(500'000, 'x')), ErrorKind::io,
                    "cannot write: " + reason + " (" + path.string() + ")");
  EXPECT_EQ(get_file(path), "old");
  EXPECT_EQ(names_in(folder), Names{"f"});
}

TEST(AtomicFile, AFileSizeLimitLeavesNothing) {
  const TempDir dir;
  const auto result = run_in_child([&] {
    install_signal_handlers();
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    expect_clean_failure(dir.path(), "File too large");
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST(AtomicFile, AFullDiskLeavesNothing) {
  const TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=100k") != 0) {
    GTEST_SKIP() << "a small file system cannot be mounted here (needs root)";
  }
  expect_clean_failure(dir.path(), "No space left on device");
  (void)::umount(dir.path().c_str());
}

/// Lets a child write and kills it at some moment; what stands under the final name is always whole.
TEST(AtomicFile, AKilledProcessLeavesTheOldOrTheNew) {
  const TempDir dir;
  const fs::path path = dir / "f";
  const std::string first(200'000, 'a');
  put_file(path, first);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (char c = 'b';; c = c == 'z' ? 'b' : static_cast<char>(c + 1)) {
        write_file_atomically(path, std::string(200'000, c));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 4 * round));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(testing::wait_for(child).signal, SIGKILL);
    const std::string found = get_file(path);
    ASSERT_EQ(found.size(), first.size());
    ASSERT_EQ(found, std::string(first.size(), found[0]));
  }
  (void)remove_stale_temporaries(dir.path());
  EXPECT_EQ(names_in(dir.path()), Names{"f"});
}

TEST(RemoveStaleTemporaries, LeavesThoseInUse) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFile file(dir / "dead");
    const AtomicDirectory folder(dir / "dead_folder");
    put_file(folder.temporary() / "inside", "x");
    ::_exit(0);  // as a crash: no destructor runs
  }
  ASSERT_EQ(testing::wait_for(child).code, 0);
  AtomicFile alive(dir / "alive");
  put_file(dir / ".tmp.keep", "");
  put_file(dir / ".hidden.tmp.12x.0", "");
  ASSERT_EQ(names_in(dir.path()).size(), 5U);
  const auto removed = remove_stale_temporaries(dir.path());
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].substr(0, 10), ".dead.tmp.");
  EXPECT_EQ(removed[1].substr(0, 17), ".dead_folder.tmp.");
  EXPECT_EQ(names_in(dir.path()).size(), 3U);
  alive.write("x");
  alive.commit();
  EXPECT_EQ(get_file(dir / "alive"), "x");
  EXPECT_TRUE(remove_stale_temporaries(dir / "none").empty());
}

TEST(IsTemporaryName, KnowsItsOwn) {
  EXPECT_TRUE(is_temporary_name(".f.tmp.123.0"));
  for (const char* other : {"", "f.tmp.123.0", ".f.tmp.123", ".f.tmp.123.", ".f.tmp..0", ".f.tmp.1a.0", ".tmp", "."}) {
    EXPECT_FALSE(is_temporary_name(other)) << other;
  }
}

TEST(AtomicDirectory, AppearsWhole) {
  const TempDir dir;
  {
    AtomicDirectory folder(dir / "a/run/");
    make_directories(folder.temporary() / "sub");
    put_file(folder.temporary() / "sub/f", "text");
    EXPECT_FALSE(fs::exists(dir / "a/run"));
    folder.commit();
  }
  EXPECT_EQ(get_file(dir / "a/run/sub/f"), "text");
  EXPECT_EQ(names_in(dir / "a"), Names{"run"});
}

TEST(AtomicDirectory, WithoutCommitNothingStays) {
  const TempDir dir;
  {
    AtomicDirectory folder(dir / "run");
    put_file(folder.temporary() / "f", "text");
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(AtomicDirectory, ReplacesOnlyWhenTold) {
  const TempDir dir;
  make_directories(dir / "run");
  {
    AtomicDirectory folder(dir / "run");  // an empty folder is as good as none
    put_file(folder.temporary() / "f", "one");
    folder.commit();
  }
  {
    AtomicDirectory folder(dir / "run");
    put_file(folder.temporary() / "g", "two");
    EXPECT_EQ(error_of([&] { folder.commit(); }).kind(), ErrorKind::usage);
    EXPECT_EQ(names_in(dir / "run"), Names{"f"});
    folder.commit(true);
  }
  EXPECT_EQ(names_in(dir / "run"), Names{"g"});
  EXPECT_EQ(names_in(dir.path()), Names{"run"});
}

TEST(AtomicDirectory, OneOfTwoAtATimeGetsTheName) {
  const TempDir dir;
  for (int round = 0; round < 30; ++round) {
    const fs::path target = dir / ("run" + std::to_string(round));
    std::barrier both(2);
    std::atomic<int> committed{0};
    std::atomic<int> refused{0};
    const auto make = [&](const std::string& name) {
      AtomicDirectory folder(target);
      for (int i = 0; i < 40; ++i) put_file(folder.temporary() / (name + std::to_string(i)), "text");
      both.arrive_and_wait();
      try {
        folder.commit();
        ++committed;
      } catch (const Error& error) {
        refused += error.kind() == ErrorKind::usage ? 1 : 0;
      }
    };
    std::thread other(make, "a");
    make("b");
    other.join();
    ASSERT_EQ(committed, 1) << round;
    ASSERT_EQ(refused, 1) << round;
    ASSERT_EQ(names_in(target).size(), 40U);
  }
}

}  // namespace
}  // namespace keel
