#include "keel/tokenizer/byte_source.h"

#include <cstring>

#include "keel/base/hash.h"
#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

using test::bytes_of_hex;

std::string read_source(ByteSource& source, int64_t step) {
  std::string all, buffer(step, '\0');
  while (const int64_t got = source.read(buffer.data(), step)) all.append(buffer, 0, got);
  return all;
}

class ByteSourceTest : public ::testing::Test {
 protected:
  std::string read(std::string_view bytes, int64_t step = 1000) {
    const std::string path = folder_ / "input";
    test::write_bytes(path, bytes);
    return read_source(*open_source(path), step);
  }
  test::TemporaryFolder folder_;
};

const std::string kText = [] {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  return text;
}();

TEST_F(ByteSourceTest, ReadsPlainGzipAndZstdByContent) {
  for (const std::string& bytes : {kText, test::gzip(kText), test::zstd(kText)}) {
    for (int64_t step : {1, 7, 4096, 1 << 20}) {
      if (step == 1 && bytes.size() > 60000) continue;
      ASSERT_EQ(read(bytes, step), kText) << step;
    }
  }
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("\x1f"), "\x1f");
}

TEST_F(ByteSourceTest, SaysWhatItRead) {
  const std::string path = folder_ / "a.txt", bytes = test::gzip(kText);
  test::write_bytes(path, bytes);
  const std::unique_ptr<ByteSource> source = open_source(path);
  read_source(*source, 4096);
  EXPECT_STREQ(source->compression(), "gzip");
  EXPECT_EQ(source->bytes_taken(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(source->xxh3(), hex(xxh3(bytes)));
}

TEST_F(ByteSourceTest, ReadsEveryZstdFrame) {
  const std::string a = bytes_of_hex("28b52ffd240d6900007b2274657874223a2261227d0aaea9718c");
  const std::string b = bytes_of_hex("28b52ffd240d6900007b2274657874223a2262227d0a3f650b73");
  const std::string empty = bytes_of_hex("28b52ffd240001000099e9d851"),
                    skippable = bytes_of_hex("502a4d180400000041424344");
  const std::string wanted = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  EXPECT_EQ(read(a + b), wanted);
  EXPECT_EQ(read(a + empty + b), wanted);
  EXPECT_EQ(read(skippable + a + b + skippable), wanted);
  EXPECT_EQ(read(skippable), "");
  EXPECT_EQ(read(test::zstd("{\"te") + test::zstd("xt\":\"a\"}")), "{\"text\":\"a\"}");
}

TEST_F(ByteSourceTest, ReadsEveryGzipMemberAndPadding) {
  const std::string a = test::gzip("first "), b = test::gzip("second"), none = test::gzip("");
  EXPECT_EQ(read(a + b), "first second");
  EXPECT_EQ(read(a + none + b), "first second");
  EXPECT_EQ(read(a + b + std::string(100000, '\0')), "first second");
}

TEST_F(ByteSourceTest, EveryCutIsNoticed) {
  const std::string text = kText.substr(0, 3000);
  for (const std::string& whole : {test::gzip(text), test::zstd(text), test::zstd("") + test::zstd(text)}) {
    for (size_t size = whole.size() - 1; size > 20; size -= 3) {
      test::expect_error(ErrorKind::format, "truncated", [&] { read(whole.substr(0, size)); });
    }
  }
}

TEST_F(ByteSourceTest, DamageIsAnErrorThatNamesTheFile) {
  std::string bytes = test::gzip(kText);
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);  // the CRC
  test::expect_error(ErrorKind::format, "input", [&] { read(bytes); });
  test::expect_error(ErrorKind::format, "check", [&] { read(bytes); });
  test::expect_error(ErrorKind::format, "other bytes follow", [&] { read(test::gzip("a") + "garbage"); });
  test::expect_error(ErrorKind::format, "other bytes follow",
                     [&] { read(test::gzip("a") + std::string(10, '\0') + "x"); });
  test::expect_error(ErrorKind::format, "other bytes follow", [&] { read(test::zstd("a") + "garbage"); });
  bytes = test::zstd(kText);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);  // the checksum
  test::expect_error(ErrorKind::format, "damaged zstd", [&] { read(bytes); });
}

TEST_F(ByteSourceTest, OtherContainersAreRefusedByName) {
  const auto refused = [&](std::string_view head, std::string_view name) {
    test::expect_error(ErrorKind::usage, name, [&] { read(std::string(head) + std::string(64, 'x')); });
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
  test::expect_error(ErrorKind::io, "nothing-here", [&] { open_source(folder_ / "nothing-here"); });
  test::expect_error(ErrorKind::io, "folder", [&] { open_source(folder_.path().string()); });
}

// A zstd header may ask for a window of 2 GiB; a small file does not get it.
TEST_F(ByteSourceTest, SmallFilesGetSmallWindows) {
  std::string frame = bytes_of_hex("28b52ffd 00 a8 010000");  // no content size, window 2^31
  test::expect_error(ErrorKind::format, "window", [&] { read(frame); });
}

// Mutations of valid files: either the right bytes of some prefix, or an error; never a crash or a hang.
TEST_F(ByteSourceTest, SurvivesDamage) {
  std::mt19937_64 random(7);
  const std::string text = kText.substr(0, 2000);
  const std::string files[] = {
      test::gzip(text), test::gzip(text.substr(0, 700)) + test::gzip(text.substr(700)), test::zstd(text),
      test::zstd(text.substr(0, 700)) + bytes_of_hex("502a4d180400000041424344") + test::zstd(text.substr(700))};
  int damaged = 0;
  for (int i = 0; i < 4000; ++i) {
    try {
      const std::string got = read(test::mutated(files[i % 4], random), 512);
      ASSERT_LT(got.size(), 1u << 20);
    } catch (const Error& error) {
      ASSERT_TRUE(error.kind() == ErrorKind::format || error.kind() == ErrorKind::usage) << error.what();
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 2000);
}

TEST_F(ByteSourceTest, ReadsCanBeCalledOff) {
  const std::string path = folder_ / "input";
  test::write_bytes(path, kText);
  std::atomic<bool> cancelled = false;
  const std::unique_ptr<ByteSource> source = open_source(path, &cancelled);
  std::string buffer(1 << 20, '\0');
  cancelled = true;
  EXPECT_THROW(while (source->read(buffer.data(), 1 << 20) > 0){}, ReadCancelled);
}

}  // namespace
}  // namespace keel
