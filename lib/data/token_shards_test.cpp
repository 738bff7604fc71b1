#include "keel/data/token_shards.h"

#include <filesystem>

#include "support/open_data.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

TEST(Llmc, ReadsBothKinds) {
  const Scratch scratch;
  const std::vector<uint16_t> narrow{50256, 1, 2, 3, 65535};
  const std::string shard = llmc_shard(20240520, 1, 5, bytes_of_all(narrow));
  EXPECT_EQ(shard.substr(0, 12), from_hex("88d83401 01000000 05000000"));
  scratch.write("d/x_train_000001.bin", shard);
  scratch.write("d/x_train_000000.bin", llmc_shard(20240801, 7, 2, bytes_of_all(std::vector<uint32_t>{128000, 9})));
  scratch.write("d/x_val_000000.bin", llmc_shard(20240520, 1, 1, bytes_of(uint16_t{4})));
  const TokenData data = open_token_data(scratch.file("d"));
  EXPECT_EQ(data.format, DataFormat::llmc);
  EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{128000, 9, 50256, 1, 2, 3, 65535}));
  EXPECT_EQ(all_tokens(*data.val), std::vector<int32_t>{4});
  EXPECT_FALSE(data.train->has_documents());
  EXPECT_EQ(data.train->documents(), -1);
  EXPECT_EQ(all_tokens(*open_token_data(scratch.file("d/*_train_*.bin")).train).size(), 7U);
  EXPECT_EQ(all_tokens(*open_token_data(scratch.file("d/x_val_000000.bin")).train).size(), 1U);
  const TokenStream train = *data.train;
  EXPECT_HAS(message_of(ErrorKind::format, [&] { read_tokens(train, 0, 7, 65535); }), "x_train_000000.bin, token 0");
}

TEST(Llmc, RefusesDamage) {
  const Scratch scratch;
  const std::string tokens = bytes_of_all(std::vector<uint16_t>{1, 2, 3});
  const auto check = [&](const std::string& bytes, const std::string& what) {
    const std::string message = open_error(ErrorKind::format, scratch.write("s.bin", bytes));
    EXPECT_HAS(message, what);
    EXPECT_HAS(message, "s.bin");
  };
  check(llmc_shard(20240520, 1, 4, tokens), "truncated: 1030 bytes, wanted 1032");
  check(llmc_shard(20240520, 1, 2, tokens), "trailing bytes: 1030 bytes, wanted 1028");
  check(llmc_shard(20240520, 1, -1, tokens), "-1 tokens");
  check(llmc_shard(20240520, 1, 0x7fffffff, tokens), "truncated");
  check(llmc_shard(20240520, 2, 3, tokens), "version 2, wanted 1");
  check(llmc_shard(20240801, 1, 3, tokens), "version 1, wanted 7");
  check(llmc_shard(20240522, 1, 3, tokens), "not a token shard");
  check(llmc_shard(20240520, 1, 3, tokens).substr(0, 500), "truncated: 500 bytes, wanted 1024");
  check(llmc_shard(20240520, 1, 0, ""), "no tokens");
  check("ab", "not a token shard");
}

TEST(Llmc, TotalsAboveThirtyTwoBits) {
  const Scratch scratch;
  int64_t left = 10251184259;
  for (int i = 0; i < 103; ++i) {
    const int64_t count = i < 102 ? 100000000 : left;
    left -= count;
    char name[40];
    std::snprintf(name, sizeof name, "d/s_train_%06d.bin", i);
    const std::string path = scratch.write(name, llmc_shard(20240520, 1, static_cast<int32_t>(count), ""));
    std::filesystem::resize_file(path, 1024 + 2 * count);  // sparse
  }
  const TokenStream stream = *open_token_data(scratch.file("d")).train;
  EXPECT_EQ(stream.tokens(), 10251184259);
  EXPECT_EQ(read_tokens(stream, 10251184258, 10251184259), std::vector<int32_t>{0});
}

TEST(Nanogpt, OnlyWhenNamed) {
  const Scratch scratch;
  scratch.write("train.bin", bytes_of_all(std::vector<uint16_t>{1, 2, 65535}));
  scratch.write("val.bin", bytes_of_all(std::vector<uint16_t>{4}));
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("")), "--data-format nanogpt");
  const TokenData data = open_token_data(scratch.file(""), DataFormat::nanogpt);
  EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{1, 2, 65535}));
  EXPECT_EQ(all_tokens(*data.val), std::vector<int32_t>{4});
  scratch.write("train.bin", "abc");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file(""), DataFormat::nanogpt), "3 bytes");
}

TEST(DataFormat, KindsDoNotMix) {
  const Scratch scratch;
  write_megatron(scratch, "a", {{1}});
  scratch.write("b.bin", llmc_shard(20240520, 1, 1, bytes_of(uint16_t{4})));
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("")), "llmc shards beside megatron shards");
  EXPECT_EQ(data_format("auto"), DataFormat::automatic);
  EXPECT_EQ(data_format(to_string(DataFormat::nanogpt)), DataFormat::nanogpt);
  EXPECT_HAS(message_of(ErrorKind::usage, [] { (void)data_format("megatorn"); }), "megatron");
}

TEST(LossMask, LiesBesideTheShard) {
  const Scratch scratch;
  write_megatron(scratch, "d/a", {{1, 2, 3}});
  write_megatron(scratch, "d/b", {{4, 5}});
  EXPECT_FALSE(open_token_data(scratch.file("d")).train->has_mask());
  scratch.write("d/b.mask", std::string("\0\1", 2));
  const TokenStream stream = *open_token_data(scratch.file("d")).train;
  EXPECT_TRUE(stream.has_mask());
  std::vector<uint8_t> mask(4);
  stream.read_mask(1, 5, {mask.data(), {4}});
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 0, 1}));
  scratch.write("d/b.mask", "\2\1");
  const TokenStream bad = *open_token_data(scratch.file("d")).train;
  EXPECT_HAS(message_of(ErrorKind::format, [&] { bad.read_mask(1, 5, {mask.data(), {4}}); }), "b.mask, token 0");
  scratch.write("d/b.mask", "\1");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("d")), "1 bytes for 2 tokens");
}

}  // namespace
}  // namespace keel
