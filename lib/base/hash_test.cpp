#include "keel/base/hash.h"
#include "keel/base/signals.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::TempDir;

TEST(Hex, IsLowerCaseAndPadded) {
  EXPECT_EQ(hex(uint64_t{0}), "0000000000000000");
  EXPECT_EQ(hex(uint64_t{0x0123456789ABCDEF}), "0123456789abcdef");
  const std::uint8_t bytes[] = {0x00, 0x0F, 0xA0};
  EXPECT_EQ(hex(bytes), "000fa0");
}

// FIPS 180-4 examples (NIST).
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// xxHash 0.8, specification and `xxhsum -H3`.
TEST(Xxh3, KnownAnswers) {
  EXPECT_EQ(hex(xxh3("")), "2d06800538d394c2");
  EXPECT_EQ(hex(xxh3("abc")), "78af5f94892f3950");
}

TEST(Hashes, StreamingEqualsOneCall) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * i);
  Sha256 sha;
  Xxh3 xxh;
  for (size_t at = 0, step = 1; at < text.size(); at += step, step = step * 2 % 1021 + 1) {
    const std::string_view part = std::string_view(text).substr(at, step);
    sha.update(part.data(), part.size());
    xxh.update(part.data(), part.size());
  }
  EXPECT_EQ(hex(sha.digest()), sha256_hex(text));
  EXPECT_EQ(hex(sha.digest()), sha256_hex(text)) << "a digest ends nothing";
  EXPECT_EQ(xxh.digest(), xxh3(text));
}

TEST(Hashes, OfFiles) {
  const TempDir dir;
  const std::string text(3'000'001, 'q');
  testing::put_file(dir / "f", text);
  EXPECT_EQ(sha256_of_file(dir / "f"), sha256_hex(text));
  EXPECT_EQ(xxh3_of_file(dir / "f"), hex(xxh3(text)));
  EXPECT_EQ(testing::error_of([&] { (void)xxh3_of_file(dir / "none"); }).kind(), ErrorKind::io);
}

TEST(Hashes, OfFilesHeedSignals) {
  const TempDir dir;
  testing::put_file(dir / "f", "text");
  request_stop(2);
  EXPECT_THROW((void)sha256_of_file(dir / "f"), Stopped);
  EXPECT_THROW((void)xxh3_of_file(dir / "f"), Stopped);
  clear_stop();
}

}  // namespace
}  // namespace keel
