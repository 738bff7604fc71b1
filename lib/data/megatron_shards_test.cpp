#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "keel/data/token_shards.h"
#include "support/open_data.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

TEST(Megatron, ReadsTheExample) {
  const Scratch scratch;
  scratch.write("p.idx", kExampleIndex);
  scratch.write("p.bin", kExampleTokens);
  ASSERT_EQ(kExampleIndex.size(), 82U);
  for (const char* name : {"p", "p.bin", "p.idx", "", "p*", "*.idx"}) {
    const TokenData data = open_token_data(scratch.file(name));
    EXPECT_EQ(data.format, DataFormat::megatron);
    ASSERT_TRUE(data.train && !data.val) << name;
    EXPECT_FALSE(data.vocab_size || data.eod_id);
    EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{283, 281, 2, 273, 2}));
    EXPECT_EQ(data.train->documents(), 2);
    EXPECT_EQ(data.train->document_starts(0, 5), (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(data.train->document_starts(1, 3), std::vector<int64_t>{});
    EXPECT_EQ(data.train->document_starts(3, 4), std::vector<int64_t>{3});
  }
}

TEST(Megatron, ReadsEveryTokenDtype) {
  const Scratch scratch;
  const auto check = [&](uint8_t code, auto example, TokenDtype dtype) {
    using T = decltype(example);
    const std::vector<T> tokens{0, 1, 2, 100,
                                std::numeric_limits<T>::max() < 70000 ? std::numeric_limits<T>::max() : T(70000)};
    scratch.write("p.bin", bytes_of_all(tokens));
    scratch.write("p.idx", megatron_index(code, sizeof(T), {2, 3}, one_each(2)));
    const TokenData data = open_token_data(scratch.file("p"));
    EXPECT_EQ(all_tokens(*data.train), std::vector<int32_t>(tokens.begin(), tokens.end()));
    EXPECT_EQ(data.train->shards()[0].type, dtype);
  };
  check(1, uint8_t{}, TokenDtype::uint8);
  check(2, int8_t{}, TokenDtype::int8);
  check(3, int16_t{}, TokenDtype::int16);
  check(4, int32_t{}, TokenDtype::int32);
  check(5, int64_t{}, TokenDtype::int64);
  check(8, uint16_t{}, TokenDtype::uint16);
  for (uint8_t code : {0, 6, 7, 9, 255}) {
    scratch.write("p.idx", megatron_index(code, 2, {2, 3}, one_each(2)));
    EXPECT_HAS(open_error(ErrorKind::format, scratch.file("p")), "dtype code");
  }
}

TEST(Megatron, SeveralSequencesADocumentAndEmptyDocuments) {
  const Scratch scratch;
  scratch.write("p.bin", bytes_of_all(std::vector<uint16_t>{1, 2, 3, 4, 5, 6}));
  // documents: {} {seq 0, 1} {} {} {seq 2 of length 0, seq 3} {}
  scratch.write("p.idx", megatron_index(8, 2, {1, 2, 0, 3}, {0, 0, 2, 2, 2, 4, 4}));
  const TokenData data = open_token_data(scratch.file("p"));
  EXPECT_EQ(data.train->documents(), 6);
  EXPECT_EQ(data.train->document_starts(0, 6), (std::vector<int64_t>{0, 3}));
  // with the modes of a multimodal set
  scratch.write("p.idx", megatron_index(8, 2, {1, 2, 0, 3}, {0, 0, 2, 2, 2, 4, 4}) + std::string(4, '\1'));
  EXPECT_EQ(open_token_data(scratch.file("p")).train->tokens(), 6);
}

struct Damage {
  const char* what;   ///< expected in the message
  size_t offset;      ///< in the example index
  std::string bytes;  ///< put there
};

TEST(Megatron, RefusesDamagedIndices) {
  const Scratch scratch;
  scratch.write("p.bin", kExampleTokens);
  const std::vector<Damage> damages{
      {"not a Megatron index", 0, "X"},
      {"version 2", 9, bytes_of(uint64_t{2})},
      {"dtype code 7 (float32)", 17, "\7"},
      {"do not fit in 82 bytes", 18, bytes_of(uint64_t{1} << 60)},
      {"do not fit in 82 bytes", 26, bytes_of(~uint64_t{0})},
      {"wanted 94", 18, bytes_of(uint64_t{3})},
      {"wanted 74", 26, bytes_of(uint64_t{2})},
      {"sequence 0 has length -3", 34, bytes_of(int32_t{-3})},
      {"sequence 1 points to byte 6, wanted 8", 34, bytes_of(int32_t{4})},
      {"sequence 0 points to byte 2", 42, bytes_of(int64_t{2})},
      {"sequence 1 points to byte -6", 50, bytes_of(int64_t{-6})},
      {"starts with 1", 58, bytes_of(int64_t{1})},
      {"document 1 starts at sequence 3 of 2", 66, bytes_of(int64_t{3})},
      {"document 1 starts at sequence -1", 66, bytes_of(int64_t{-1})},
      {"ends with sequence 1, wanted 2", 74, bytes_of(int64_t{1})},
  };
  for (const Damage& damage : damages) {
    std::string index = kExampleIndex;
    index.replace(damage.offset, damage.bytes.size(), damage.bytes);
    scratch.write("p.idx", index);
    const std::string message = open_error(ErrorKind::format, scratch.file("p"));
    EXPECT_HAS(message, damage.what);
    EXPECT_HAS(message, "p.idx");
  }
  for (size_t size : {0, 5, 33, 34, 81}) {
    scratch.write("p.idx", kExampleIndex.substr(0, size));
    open_error(ErrorKind::format, scratch.file("p"));
  }
  scratch.write("p.idx", kExampleIndex + "x");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("p")), "83 bytes, wanted 82");
}

TEST(Megatron, SizesMustAgreeExactly) {
  const Scratch scratch;
  scratch.write("p.idx", kExampleIndex);
  scratch.write("p.bin", kExampleTokens.substr(0, 9));
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("p")), "truncated: 9 bytes, wanted 10");
  scratch.write("p.bin", kExampleTokens + "x");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("p")), "trailing bytes: 11 bytes, wanted 10");
}

TEST(Megatron, MissingAndEmpty) {
  const Scratch scratch;
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("nowhere")), "nowhere");
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("no*")), "no file matches");
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file(std::string(5000, 'x'))), "no such data");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("")), "no token shards");
  scratch.write("p.idx", kExampleIndex);
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("p")), "p.bin");
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("")), "p.bin");
  scratch.write("q.bin", kExampleTokens);
  EXPECT_HAS(open_error(ErrorKind::io, scratch.file("q"), DataFormat::megatron), "q.idx");
  write_megatron(scratch, "empty/e", {});
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("empty/e")), "no tokens");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("empty")), "no tokens");
  scratch.write("zero.bin", "");
  EXPECT_HAS(open_error(ErrorKind::format, scratch.file("zero.bin")), "0 bytes");
}

TEST(Megatron, FilesAreRegular) {
  const Scratch scratch;
  for (const char* name : {"d/p.bin", "d/p.idx", "d/p.mask"}) {
    write_megatron(scratch, "d/p", {{1, 2}});
    std::filesystem::remove(scratch.file(name));
    ASSERT_EQ(::mkfifo(scratch.file(name).c_str(), 0600), 0);
    const std::string message = open_error(ErrorKind::io, scratch.file("d"), DataFormat::megatron);
    EXPECT_HAS(message, "not a regular file");
    EXPECT_HAS(message, name + 2);
    std::filesystem::remove(scratch.file(name));
  }
}

TEST(Megatron, ShardsFollowInNameOrder) {
  const Scratch scratch;
  write_megatron(scratch, "d/b", {{4, 5}, {6}});
  write_megatron(scratch, "d/a", {{1, 2, 3}});
  write_megatron(scratch, "d/aa-empty", {});
  write_megatron(scratch, "d/c", {{7}, {}, {8, 9}});
  write_megatron(scratch, "d/x-val", {{100}});
  write_megatron(scratch, "d/validation_1", {{101, 102}});
  write_megatron(scratch, "d/evaluate", {{10}});
  const TokenData data = open_token_data(scratch.file("d"));
  EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(all_tokens(*data.val), (std::vector<int32_t>{101, 102, 100}));
  EXPECT_EQ(data.train->documents(), 7);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      std::vector<int32_t> wanted(end - begin);
      std::iota(wanted.begin(), wanted.end(), static_cast<int32_t>(begin + 1));
      EXPECT_EQ(read_tokens(*data.train, begin, end), wanted);
      std::vector<int64_t> starts;
      for (int64_t start : {0, 3, 5, 6, 7, 9}) {
        if (start >= begin && start < end) starts.push_back(start);
      }
      EXPECT_EQ(data.train->document_starts(begin, end), starts) << begin << " " << end;
    }
  }
}

TEST(Megatron, IdsOutsideTheVocabularyAreNamed) {
  const Scratch scratch;
  write_megatron(scratch, "d/a", {{1, 2, 3}});
  write_megatron(scratch, "d/b", {{1, 2}, {}, {3, 4, 5, 6, 7, 330, 8}, {9}});
  const TokenStream stream = *open_token_data(scratch.file("d")).train;
  const std::string message = message_of(ErrorKind::format, [&] { read_tokens(stream, 1, 13, 330); });
  EXPECT_HAS(message, "token id 330 is outside the vocabulary of 330");
  EXPECT_HAS(message, "b.bin, document 2, position 5");
  EXPECT_EQ(read_tokens(stream, 1, 13, 331)[9], 330);
  EXPECT_EQ(read_tokens(stream, 0, 10, 330).size(), 10U);  // not read, not refused

  scratch.write("n.bin", bytes_of_all(std::vector<int32_t>{5, -1}));
  scratch.write("n.idx", megatron_index(4, 4, {2}, one_each(1)));
  const TokenStream negative = *open_token_data(scratch.file("n")).train;
  EXPECT_HAS(message_of(ErrorKind::format, [&] { all_tokens(negative); }), "token id -1");
  scratch.write("w.bin", bytes_of_all(std::vector<int64_t>{5, (int64_t{1} << 32) + 5}));
  scratch.write("w.idx", megatron_index(5, 8, {2}, one_each(1)));
  const TokenStream wide = *open_token_data(scratch.file("w")).train;
  EXPECT_HAS(message_of(ErrorKind::format, [&] { all_tokens(wide); }), "token id 4294967301");
}

TEST(Megatron, OffsetsAboveFourGigabytes) {
  const Scratch scratch;
  const std::string bin = scratch.write("big.bin", "");
  std::filesystem::resize_file(bin, 4294967312);  // sparse
  {
    std::fstream file(bin, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4294967312 - 8);
    file << bytes_of_all(std::vector<uint16_t>{7, 8, 9, 10});
  }
  scratch.write("big.idx", megatron_index(8, 2, {1073741828, 1073741828}, one_each(2)));
  const TokenStream stream = *open_token_data(scratch.file("big")).train;
  EXPECT_EQ(stream.tokens(), 2147483656);
  EXPECT_EQ((stream.tokens() - 1) / 1024, 2097152);
  EXPECT_EQ(read_tokens(stream, stream.tokens() - 4, stream.tokens()), (std::vector<int32_t>{7, 8, 9, 10}));
  EXPECT_EQ(stream.document_starts(0, stream.tokens()), (std::vector<int64_t>{0, 1073741828}));
}

TEST(Megatron, GoldenFiles) {
  const auto folder = test_data();
  if (!folder) GTEST_SKIP() << "KEEL_TEST_DATA is not set";
  const std::string golden = (*folder / "golden/tokens/megatron").string();
  const TokenData data = open_token_data(golden + "/c4-sample.01-gpt2-eod");
  EXPECT_EQ(data.train->documents(), 10);
  EXPECT_EQ(data.train->tokens(), 3215);
  const auto tokens = all_tokens(*data.train);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 50256), 10);
  for (int64_t start : data.train->document_starts(1, 3215)) EXPECT_EQ(tokens[start - 1], 50256);
  EXPECT_EQ(open_token_data(golden + "/c4-sample.01-llama3.1-noeod").train->shards()[0].type, TokenDtype::int32);
  EXPECT_EQ(open_token_data(golden + "/empty-docs-gpt2-eod").train->documents(), 5);
  EXPECT_EQ(open_token_data(golden + "/empty-docs-gpt2-eod").train->document_starts(0, 1).size(), 1U);
  open_error(ErrorKind::format, golden + "/no-docs-gpt2");
  EXPECT_EQ(open_token_data(golden).train->shards().size(), 7U);
}

}  // namespace
}  // namespace keel
