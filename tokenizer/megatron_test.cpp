#include "keel/tokenizer/megatron.h"

#include <cstring>

#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

using test::bytes_of_hex;

template <class T>
void append_ids(ShardWriter& shard, const std::vector<std::vector<int64_t>>& sequences) {
  std::vector<int64_t> lengths;
  std::vector<T> ids;
  for (const std::vector<int64_t>& sequence : sequences) {
    lengths.push_back(static_cast<int64_t>(sequence.size()));
    for (int64_t id : sequence) ids.push_back(static_cast<T>(id));
  }
  shard.append_document(lengths.data(), static_cast<int64_t>(lengths.size()));
  shard.append_tokens(ids.data(), static_cast<int64_t>(ids.size() * sizeof(T)));
}

std::vector<int64_t> document(const ShardReader& shard, int64_t k) {
  std::vector<int64_t> ids;
  shard.read_document(k, ids);
  return ids;
}

TEST(Megatron, TheExampleOfTheFormat) {
  test::TemporaryFolder folder;
  ShardWriter shard(folder / "a", TokenType::uint16);
  append_ids<uint16_t>(shard, {{10, 11, 12}});
  append_ids<uint16_t>(shard, {{13, 65535}});
  shard.finish();
  EXPECT_EQ(test::read_bytes(folder / "a.idx"),
            bytes_of_hex("4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 03000000 02000000"
                         "0000000000000000 0600000000000000 0000000000000000 0100000000000000 0200000000000000"));
  EXPECT_EQ(test::read_bytes(folder / "a.bin"), bytes_of_hex("0a000b000c000d00ffff"));
  const ShardReader reader(folder / "a");
  EXPECT_EQ(reader.documents(), 2);
  EXPECT_EQ(reader.tokens(), 5);
  EXPECT_EQ(document(reader, 1), (std::vector<int64_t>{13, 65535}));
  EXPECT_EQ(reader.id_range()->smallest, 10);
  EXPECT_EQ(reader.id_range()->largest, 65535);
}

TEST(Megatron, TheTypeFollowsTheLargestId) {
  EXPECT_EQ(token_type_for(65535), TokenType::uint16);
  EXPECT_EQ(token_type_for(65536), TokenType::int32);
  EXPECT_EQ(static_cast<int>(TokenType::uint16), 8);
  EXPECT_EQ(static_cast<int>(TokenType::int32), 4);
}

TEST(Megatron, BothTypesReadBackTheSame) {
  test::TemporaryFolder folder;
  ShardWriter narrow(folder / "n", TokenType::uint16), wide(folder / "w", TokenType::int32);
  append_ids<uint16_t>(narrow, {{0, 69}, {5}});
  append_ids<int32_t>(wide, {{0, 69}, {5}});
  narrow.finish();
  wide.finish();
  const ShardReader a(folder / "n"), b(folder / "w");
  EXPECT_EQ(a.type(), TokenType::uint16);
  EXPECT_EQ(b.type(), TokenType::int32);
  EXPECT_EQ(document(a, 0), document(b, 0));
  EXPECT_EQ(a.sequences(), 2);
  EXPECT_EQ(a.documents(), 1);
}

TEST(Megatron, EmptyDocumentsAndEmptySets) {
  test::TemporaryFolder folder;
  ShardWriter shard(folder / "a", TokenType::uint16);
  append_ids<uint16_t>(shard, {});
  append_ids<uint16_t>(shard, {{7}});
  append_ids<uint16_t>(shard, {});
  shard.finish();
  const ShardReader reader(folder / "a");
  EXPECT_EQ(reader.documents(), 3);
  EXPECT_EQ(reader.sequences(), 1);
  EXPECT_TRUE(document(reader, 0).empty());
  EXPECT_EQ(document(reader, 1), std::vector<int64_t>{7});
  ShardWriter none(folder / "none", TokenType::uint16);
  none.finish();
  const ShardReader nothing(folder / "none");
  EXPECT_EQ(nothing.documents(), 0);
  EXPECT_EQ(nothing.idx_bytes(), 42);
  EXPECT_FALSE(nothing.id_range());
}

TEST(Megatron, RewindsToAMark) {
  test::TemporaryFolder folder;
  ShardWriter shard(folder / "a", TokenType::uint16), wanted(folder / "b", TokenType::uint16);
  append_ids<uint16_t>(shard, {{1, 2}});
  const ShardWriter::Mark mark = shard.mark();
  append_ids<uint16_t>(shard, {{3}, {4, 5}});
  shard.rewind(mark);
  append_ids<uint16_t>(shard, {{6}});
  shard.finish();
  append_ids<uint16_t>(wanted, {{1, 2}});
  append_ids<uint16_t>(wanted, {{6}});
  wanted.finish();
  EXPECT_EQ(test::read_bytes(folder / "a.bin"), test::read_bytes(folder / "b.bin"));
  EXPECT_EQ(test::read_bytes(folder / "a.idx"), test::read_bytes(folder / "b.idx"));
}

TEST(Megatron, LengthsEndAt31Bits) {
  test::TemporaryFolder folder;
  ShardWriter shard(folder / "a", TokenType::uint16);
  const int64_t length = int64_t{1} << 31;
  test::expect_error(ErrorKind::format, "2147483648 tokens", [&] { shard.append_document(&length, 1); });
}

TEST(Megatron, ReadsEveryTokenTypeAndModes) {
  test::TemporaryFolder folder;
  const auto write = [&](int code, const std::string& bin, int64_t item) {
    std::string idx = bytes_of_hex("4d4d49444944580000 0100000000000000 00 0100000000000000 0200000000000000");
    idx[17] = static_cast<char>(code);
    const auto length = static_cast<int32_t>(static_cast<int64_t>(bin.size()) / item);
    idx.append(reinterpret_cast<const char*>(&length), 4);
    idx.append(8, '\0');
    idx += bytes_of_hex("0000000000000000 0100000000000000 00");  // documents, and a mode
    test::write_bytes(folder / "a.idx", idx);
    test::write_bytes(folder / "a.bin", bin);
    return document(ShardReader(folder / "a"), 0);
  };
  EXPECT_EQ(write(1, bytes_of_hex("00ff"), 1), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(write(2, bytes_of_hex("00ff"), 1), (std::vector<int64_t>{0, -1}));
  EXPECT_EQ(write(3, bytes_of_hex("0100ffff"), 2), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(write(8, bytes_of_hex("0100ffff"), 2), (std::vector<int64_t>{1, 65535}));
  EXPECT_EQ(write(4, bytes_of_hex("00000100ffffffff"), 4), (std::vector<int64_t>{65536, -1}));
  EXPECT_EQ(write(5, bytes_of_hex("0000000001000000"), 8), (std::vector<int64_t>{int64_t{1} << 32}));
  test::expect_error(ErrorKind::format, "token type 6", [&] { write(6, "12345678", 8); });
  test::expect_error(ErrorKind::format, "token type 9", [&] { write(9, "12345678", 8); });
}

class DamagedShard : public ::testing::Test {
 protected:
  DamagedShard() {
    ShardWriter shard(folder_ / "a", TokenType::uint16);
    append_ids<uint16_t>(shard, {{10, 11, 12}});
    append_ids<uint16_t>(shard, {{13}, {14, 15}});
    shard.finish();
    idx_ = test::read_bytes(folder_ / "a.idx");
    bin_ = test::read_bytes(folder_ / "a.bin");
  }
  void expect_damage(std::string_view text, const std::string& idx, const std::string& bin) {
    test::write_bytes(folder_ / "b.idx", idx);
    test::write_bytes(folder_ / "b.bin", bin);
    test::expect_error(ErrorKind::format, text, [&] { ShardReader(folder_ / "b"); });
  }
  std::string with_u64(size_t at, uint64_t value) const {
    std::string idx = idx_;
    std::memcpy(idx.data() + at, &value, 8);
    return idx;
  }
  test::TemporaryFolder folder_;
  std::string idx_, bin_;
};

TEST_F(DamagedShard, IsRefusedWithTheReason) {
  expect_damage("0 bytes", "", bin_);
  expect_damage("MMIDIDX", "not an index, but longer than a header", bin_);
  expect_damage("version 2", with_u64(9, 2), bin_);
  expect_damage("do not fit", with_u64(18, 4), bin_);
  expect_damage("do not fit", with_u64(18, uint64_t{1} << 62), bin_);
  expect_damage("do not fit", with_u64(18, ~uint64_t{0}), bin_);
  expect_damage("do not fit", with_u64(26, 0), bin_);
  expect_damage("do not fit", with_u64(26, ~uint64_t{0}), bin_);
  expect_damage("do not fit", idx_.substr(0, idx_.size() - 1), bin_);
  expect_damage("do not fit", idx_ + "xx", bin_);
  expect_damage("sequence 1", with_u64(34 + 12 + 8, 7), bin_);
  expect_damage("document entry 0", with_u64(34 + 36, 1), bin_);
  expect_damage("document entry 1", with_u64(34 + 36 + 8, 99), bin_);
  expect_damage("document entry 2", with_u64(34 + 36 + 16, 2), bin_);
  expect_damage("10 bytes where the index says 12", idx_, bin_.substr(0, 10));
  expect_damage("14 bytes where the index says 12", idx_, bin_ + "xx");
  test::expect_error(ErrorKind::io, "missing.idx", [&] { ShardReader(folder_ / "missing"); });
}

TEST_F(DamagedShard, NeverCrashesAReader) {
  std::mt19937_64 random(11);
  int refused = 0;
  test::write_bytes(folder_ / "b.bin", bin_);
  for (int i = 0; i < 5000; ++i) {
    test::write_bytes(folder_ / "b.idx", test::mutated(idx_, random));
    try {
      const ShardReader reader(folder_ / "b");
      for (int64_t k = 0; k < reader.documents(); ++k) ASSERT_LE(document(reader, k).size(), 12u);
      reader.id_range();
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::format) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 4000);
}

TEST(MegatronGolden, ReadsFilesOfMegatronItself) {
  KEEL_NEEDS_TEST_DATA();
  const std::string folder = test::large_test_data() + "/golden/tokens/megatron/";
  const ShardReader llama(folder + "c4-sample.01-llama2-eod");
  EXPECT_EQ(llama.documents(), 10);
  EXPECT_EQ(llama.tokens(), 3666);
  EXPECT_EQ(llama.type(), TokenType::uint16);
  EXPECT_EQ(document(llama, 9).back(), 2);
  const ShardReader wide(folder + "c4-sample.01-llama3.1-noeod");
  EXPECT_EQ(wide.type(), TokenType::int32);
  EXPECT_EQ(wide.tokens(), 3124);
  const ShardReader holes(folder + "empty-docs-gpt2-eod");
  EXPECT_EQ(holes.documents(), 5);
  EXPECT_EQ(holes.sequences(), 3);
  EXPECT_EQ(ShardReader(folder + "no-docs-gpt2").documents(), 0);
}

}  // namespace
}  // namespace keel
