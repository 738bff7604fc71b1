#include "keel/tokenizer/byte_source.h"

#include <cstring>

#include "keel/base/hash.h"
#include "keel/tokenizer/test_support.h"
#include "support/mutate.h"

namespace keel {
namespace {

using testing::from_hex;

std::string read_source(ByteSource& source, int64_t step) {
  std::string all, buffer(step, '\0');
  while (const int64_t got = source.read(buffer.data(), step)) all.append(buffer, 0, got);
  return all;
}

class ByteSourceTest : public ::testing::Test {
 protected:
  std::string read(std::string_view bytes, int64_t step = 1000) {
    const std::string path = folder_.file("input");
    testing::put_file(path, bytes);
    return read_source(*open_source(path), step);
  }
  testing::Scratch folder_;
};

const std::string kText = [] {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  return text;
}();

TEST_F(ByteSourceTest, ReadsPlainGzipAndZstdByContent) {
  for (const std::string& bytes : {kText, testing::gzip(kText), testing::zstd(kText)}) {
    for (int64_t step : {1, 7, 4096, 1 << 20}) {
      if (step == 1 && bytes.size() > 60000) continue;
      ASSERT_EQ(read(bytes, step), kText) << step;
    }
  }
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("\x1f"), "\x1f");
}

TEST_F(ByteSourceTest, SaysWhatItRead) {
  const std::string path = folder_.file("a.txt"), bytes = testing::gzip(kText);
  testing::put_file(path, bytes);
  const std::unique_ptr<ByteSource> source = open_source(path);
  read_source(*source, 4096);
  EXPECT_STREQ(source->compression(), "gzip");
  EXPECT_EQ(source->bytes_taken(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(source->xxh3(), hex(xxh3(bytes)));
}

TEST_F(ByteSourceTest, ReadsEveryZstdFrame) {
  const std::string a = from_hex("28b52ffd240d6900007b2274657874223a2261227d0aaea9718c");
  const std::string b = from_hex("28b52ffd240d6900007b2274657874223a2262227d0a3f650b73");
  const std::string empty = from_hex("28b52ffd240001000099e9d851"), skippable = from_hex("502a4d180400000041424344");
  const std::string wanted = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  EXPECT_EQ(read(a + b), wanted);
  EXPECT_EQ(read(a + empty + b), wanted);
  EXPECT_EQ(read(skippable + a + b + skippable), wanted);
  EXPECT_EQ(read(skippable), "");
  EXPECT_EQ(read(testing::zstd("{\"te") + testing::zstd("xt\":\"a\"}")), "{\"text\":\"a\"}");
}

TEST_F(ByteSourceTest, ReadsEveryGzipMemberAndPadding) {
  const std::string a = testing::gzip("first "), b = testing::gzip("second"), none = testing::gzip("");
  EXPECT_EQ(read(a + b), "first second");
  EXPECT_EQ(read(a + none + b), "first second");
  EXPECT_EQ(read(a + b + std::string(100000, '\0')), "first second");
}

TEST_F(ByteSourceTest, EveryCutIsNoticed) {
  const std::string text = kText.substr(0, 3000);
  for (const std::string& whole : {testing::gzip(text), testing::zstd(text), testing::zstd("") + testing::zstd(text)}) {
    for (size_t size = whole.size() - 1; size > 20; size -= 3) {
      testing::expect_error(ErrorKind::format, "truncated", [&] { read(whole.substr(0, size)); });
    }
  }
}

TEST_F(ByteSourceTest, DamageIsAnErrorThatNamesTheFile) {
  std::string bytes = testing::gzip(kText);
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);  // the CRC
  testing::expect_error(ErrorKind::format, "input", [&] { read(bytes); });
  testing::expect_error(ErrorKind::format, "check", [&] { read(bytes); });
  testing::expect_error(ErrorKind::format, "other bytes follow", [&] { read(testing::gzip("a") + "garbage"); });
  testing::expect_error(ErrorKind::format, "other bytes follow",
                        [&] { read(testing::gzip("a") + std::string(10, '\0') + "x"); });
  testing::expect_error(ErrorKind::format, "other bytes follow", [&] { read(testing::zstd("a") + "garbage"); });
  bytes = testing::zstd(kText);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);  // the checksum
  testing::expect_error(ErrorKind::format, "damaged zstd", [&] { read(bytes); });
}

TEST_F(ByteSourceTest, OtherContainersAreRefusedByName) {
  const auto refused = [&](std::string_view head, std::string_view name) {
    testing::expect_error(ErrorKind::usage, name, [&] { read(std::string(head) + std::string(64, 'x')); });
  };
  refused("BZh9", "bzip2");
  refused(std::string_view("\xFD"
                           "7zXZ\0",
                           6),
          "xz");
  refused("\x04\x22\x4d\x18", "lz4");
  refused("PK\x03\x04", "zip");
  refused("PAR1", "parquet");
}

TEST_F(ByteSourceTest, MissingFilesAndFolders) {
  testing::expect_error(ErrorKind::io, "nothing-here", [&] { open_source(folder_.file("nothing-here")); });
  testing::expect_error(ErrorKind::io, "folder", [&] { open_source(folder_.path().string()); });
}

// A zstd header may ask for a window of 2 GiB; a small file does not get it.
TEST_F(ByteSourceTest, SmallFilesGetSmallWindows) {
  std::string frame = from_hex("28b52ffd 00 a8 010000");  // no content size, window 2^31
  testing::expect_error(ErrorKind::format, "window", [&] { read(frame); });
}

// Mutations of valid files: either the right bytes of some prefix, or an error; never a crash or a hang.
TEST_F(ByteSourceTest, SurvivesDamage) {
  testing::Random random(7);
  const std::string text = kText.substr(0, 2000);
  const std::string files[] = {
      testing::gzip(text), testing::gzip(text.substr(0, 700)) + testing::gzip(text.substr(700)), testing::zstd(text),
      testing::zstd(text.substr(0, 700)) + from_hex("502a4d180400000041424344") + testing::zstd(text.substr(700))};
  int damaged = 0;
  for (int i = 0; i < 4000; ++i) {
    try {
      const std::string got = read(testing::mutated(files[i % 4], random), 512);
      ASSERT_LT(got.size(), 1u << 20);
    } catch (const Error& error) {
      ASSERT_TRUE(error.kind() == ErrorKind::format || error.kind() == ErrorKind::usage) << error.what();
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 2000);
}

TEST_F(ByteSourceTest, ReadsCanBeCalledOff) {
  const std::string path = folder_.file("input");
  testing::put_file(path, kText);
  std::atomic<bool> cancelled = false;
  const std::unique_ptr<ByteSource> source = open_source(path, &cancelled);
  std::string buffer(1 << 20, '\0');
  cancelled = true;
  EXPECT_THROW(while (source->read(buffer.data(), 1 << 20) > 0){}, ReadCancelled);
}

TEST_F(ByteSourceTest, TheBeginningOfAZstdMagicIsNoText) {
  for (const char* head : {"28b5", "28b52f"}) {
    testing::expect_error(ErrorKind::format, "truncated zstd file", [&] { read(from_hex(head)); });
  }
  EXPECT_EQ(read("("), "(");
}

TEST_F(ByteSourceTest, AFileThatShrinksIsDamaged) {
  // Members and frames, so that each cut falls on the end of one: nothing else tells that more was there.
  const std::string text(600'000, 'x');
  std::string members, frames;
  for (int i = 0; i < 40'000; ++i) members += testing::gzip("line\n");
  for (int i = 0; i < 40'000; ++i) frames += testing::zstd("line\n");
  const auto check = [&](const std::string& bytes, size_t kept) {
    const std::string path = folder_.file("input");
    testing::put_file(path, bytes);
    const std::unique_ptr<ByteSource> source = open_source(path);
    std::filesystem::resize_file(path, kept);
    testing::expect_error(ErrorKind::format,
                          "the file became shorter while it was read: ", [&] { read_source(*source, 1 << 16); });
  };
  check(text, 500'000);
  check(members, members.size() / 4 * 3 / testing::gzip("line\n").size() * testing::gzip("line\n").size());
  check(frames, frames.size() / 4 * 3 / testing::zstd("line\n").size() * testing::zstd("line\n").size());
}

TEST_F(ByteSourceTest, AFileThatGrowsIsReadToItsNewEnd) {
  const std::string path = folder_.file("input");
  const std::string text(600'000, 'x');
  testing::put_file(path, text);
  const std::unique_ptr<ByteSource> source = open_source(path);
  testing::put_file(path, text + "more");
  EXPECT_EQ(read_source(*source, 1 << 16), text + "more");
}

}  // namespace
}  // namespace keel
