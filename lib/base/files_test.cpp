#include "keel/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "keel/base/mapped_file.h"
#include "keel/base/process.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::error_of;
using testing::put_file;
using testing::TempDir;

TEST(ReadFile, ReturnsAllBytes) {
  const TempDir dir;
  const std::string text = std::string("a\0b\n", 4) + std::string(300'000, 'x');
  put_file(dir / "f", text);
  EXPECT_EQ(read_file(dir / "f"), text);
  EXPECT_EQ(read_file(dir / "f", std::ssize(text)), text);
  put_file(dir / "empty", "");
  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_EQ(read_file(dir / "empty", 0), "");
}

TEST(ReadFile, ReadsFilesThatDoNotTellTheirSize) {
  EXPECT_NE(read_file("/proc/self/status").find("VmRSS"), std::string::npos);
}

TEST(ReadFile, RefusesMoreThanTheLimit) {
  const TempDir dir;
  put_file(dir / "f", "12345");
  KEEL_EXPECT_ERROR(read_file(dir / "f", 4), ErrorKind::format,
                    "file has more than 4 bytes (" + (dir / "f").string() + ")");
}

TEST(ReadFile, NamesPathAndReason) {
  const TempDir dir;
  KEEL_EXPECT_ERROR(read_file(dir / "none"), ErrorKind::io,
                    "cannot read: No such file or directory (" + (dir / "none").string() + ")");
  KEEL_EXPECT_ERROR(read_file(dir.path()), ErrorKind::io, "cannot read: Is a directory (" + dir.path().string() + ")");
}

TEST(ReadRegularFile, NeverWaitsForAPipe) {
  const TempDir dir;
  put_file(dir / "f", "text");
  EXPECT_EQ(read_regular_file(dir / "f", 4), "text");
  EXPECT_EQ(error_of([&] { read_regular_file(dir / "f", 3); }).kind(), ErrorKind::format);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  KEEL_EXPECT_ERROR(read_regular_file(dir / "pipe", 4), ErrorKind::io,
                    "not a regular file (" + (dir / "pipe").string() + ")");
  EXPECT_EQ(error_of([] { read_regular_file("/dev/zero", 4); }).kind(), ErrorKind::io);
  EXPECT_EQ(error_of([&] { read_regular_file(dir / "", 4); }).kind(), ErrorKind::io);
}

TEST(IsThere, SeesLinksThatLeadNowhere) {
  const TempDir dir;
  EXPECT_FALSE(is_there(dir / "link"));
  std::filesystem::create_symlink("nowhere", dir / "link");
  EXPECT_TRUE(is_there(dir / "link"));
}

TEST(SizeOfFile, IsForRegularFilesOnly) {
  const TempDir dir;
  put_file(dir / "f", "12345");
  EXPECT_EQ(size_of_file(dir / "f"), 5);
  EXPECT_EQ(error_of([&] { (void)size_of_file(dir.path()); }).kind(), ErrorKind::io);
  EXPECT_EQ(error_of([&] { (void)size_of_file("/dev/null"); }).kind(), ErrorKind::io);
}

TEST(MakeDirectories, MakesParentsAndAcceptsWhatExists) {
  const TempDir dir;
  make_directories(dir / "a/b/c");
  make_directories(dir / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/c"));
  put_file(dir / "f", "");
  KEEL_EXPECT_ERROR(make_directories(dir / "f"), ErrorKind::io,
                    "cannot create folder: Not a directory (" + (dir / "f").string() + ")");
  EXPECT_EQ(error_of([&] { make_directories(dir / "f/g"); }).kind(), ErrorKind::io);
}

TEST(Require, TellsFilesFromFolders) {
  const TempDir dir;
  put_file(dir / "f", "");
  require_file(dir / "f");
  require_directory(dir.path());
  EXPECT_EQ(error_of([&] { require_file(dir.path()); }).kind(), ErrorKind::io);
  EXPECT_EQ(error_of([&] { require_directory(dir / "f"); }).kind(), ErrorKind::io);
  EXPECT_EQ(error_of([&] { require_file(dir / "none"); }).kind(), ErrorKind::io);
}

TEST(RequireAbsent, ProtectsWhatExists) {
  const TempDir dir;
  put_file(dir / "f", "");
  require_absent(dir / "none", false);
  require_absent(dir / "f", true);
  KEEL_EXPECT_ERROR(require_absent(dir / "f", false), ErrorKind::usage,
                    "output exists already (" + (dir / "f").string() + "): use --force to replace it");
  KEEL_EXPECT_ERROR(require_absent(dir.path(), false, "use --resume"), ErrorKind::usage,
                    "output exists already (" + dir.path().string() + "): use --resume");
  make_directories(dir / "empty");
  require_absent(dir / "empty", false);
  require_absent("/dev/null", false);
}

TEST(WriteAll, ReportsAFullDisk) {
  const Descriptor full(::open("/dev/full", O_WRONLY));
  ASSERT_TRUE(static_cast<bool>(full));
  KEEL_EXPECT_ERROR(write_all(full.get(), "x", 1, "/dev/full"), ErrorKind::io,
                    "cannot write: No space left on device (/dev/full)");
}

TEST(FreeDiskBytes, LooksAtTheNearestExistingFolder) {
  const TempDir dir;
  EXPECT_GT(free_disk_bytes(dir.path()), 0);
  EXPECT_GT(free_disk_bytes(dir / "not/yet/there"), 0);
}

TEST(Descriptor, ClosesOnce) {
  int number = -1;
  {
    Descriptor first(::open("/dev/null", O_RDONLY));
    number = first.get();
    Descriptor second(std::move(first));
    EXPECT_FALSE(static_cast<bool>(first));  // NOLINT: what a move leaves behind is part of the contract
    EXPECT_EQ(second.get(), number);
    EXPECT_NE(::fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(MappedFile, ShowsTheBytes) {
  const TempDir dir;
  put_file(dir / "f", "hello");
  MappedFile file(dir / "f", MappedFile::Advice::sequential);
  ASSERT_EQ(file.size(), 5);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  const MappedFile moved = std::move(file);
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'h');
  EXPECT_EQ(file.size(), 0);  // NOLINT: as above
  EXPECT_EQ(moved.path(), dir / "f");
}

TEST(MappedFile, AnEmptyFileIsNoError) {
  const TempDir dir;
  put_file(dir / "f", "");
  EXPECT_TRUE(MappedFile(dir / "f").bytes().empty());
}

TEST(MappedFile, WhatIsReleasedIsNotResidentAndCanBeReadAgain) {
  constexpr int64_t kSize = 32 << 20;
  const TempDir dir;
  put_file(dir / "f", std::string(kSize, 'x'));
  const MappedFile file(dir / "f");
  const auto count = [&] { return std::count(file.bytes().begin(), file.bytes().end(), std::byte{'x'}); };
  EXPECT_EQ(count(), kSize);
  const int64_t before = process_memory().resident_bytes;
  file.release({});
  file.release(file.bytes().subspan(1, kSize - 2));
  const int64_t released = before - process_memory().resident_bytes;
  EXPECT_GT(released, kSize * 3 / 4);
  EXPECT_EQ(count(), kSize);
}

TEST(MappedFile, OnlyRegularFiles) {
  const TempDir dir;
  EXPECT_EQ(error_of([&] { MappedFile file(dir.path()); }).kind(), ErrorKind::io);
  EXPECT_EQ(error_of([&] { MappedFile file(dir / "none"); }).kind(), ErrorKind::io);
}

TEST(ReadFile, TakesWhatAPipeGives) {
  const TempDir dir;
  const std::filesystem::path pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(300'000, 'x');
  const auto read_piped = [&](int64_t most) {
    std::thread writer([&] { put_file(pipe, text); });
    try {
      std::string got = read_file(pipe, most, ErrorKind::config);
      writer.join();
      return got;
    } catch (...) {
      writer.join();
      throw;
    }
  };
  EXPECT_EQ(read_piped(300'000), text);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  KEEL_EXPECT_ERROR(read_piped(299'999), ErrorKind::config, "file has more than 299999 bytes (" + pipe.string() + ")");
  (void)std::signal(SIGPIPE, before);
}

TEST(ReadFile, RefusesALargeFileBeforeReadingIt) {
  const TempDir dir;
  put_file(dir / "f", "");
  std::filesystem::resize_file(dir / "f", uint64_t{1} << 40);
  KEEL_EXPECT_ERROR(read_file(dir / "f"), ErrorKind::format,
                    "file has more than 1073741824 bytes (" + (dir / "f").string() + ")");
}

}  // namespace
}  // namespace keel
