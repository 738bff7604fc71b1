#include "keel/data/token_shards.h"

#include <filesystem>
#include <numeric>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "support/numeric.h"
#include "support/shards.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

constexpr int64_t kAnyToken = int64_t{1} << 31;

std::vector<int32_t> read_tokens(const TokenStream& stream, int64_t begin, int64_t end, int64_t limit = kAnyToken) {
  std::vector<int32_t> tokens(end - begin);
  stream.read(begin, end, {tokens.data(), {end - begin}}, limit);
  return tokens;
}

std::vector<int32_t> all_tokens(const TokenStream& stream) {
  return read_tokens(stream, 0, stream.tokens());
}

std::string open_error(ErrorKind kind, const std::string& path, DataFormat format = DataFormat::automatic) {
  return message_of(kind, [&] { (void)open_token_data(path, format); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << (text)

// --- Megatron -------------------------------------------------------------------------------------------------------

/// formats.md 1.4
const std::string kExampleIndex = from_hex(
    "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 03000000 02000000 0000000000000000 "
    "0600000000000000 0000000000000000 0100000000000000 0200000000000000");
const std::string kExampleTokens = from_hex("1b01 1901 0200 1101 0200");

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

// --- llm.c and nanoGPT ----------------------------------------------------------------------------------------------

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

// --- masks ----------------------------------------------------------------------------------------------------------

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

// --- keel-tokenize directories --------------------------------------------------------------------------------------

std::string shard_entry(const Scratch& scratch, const std::string& name, int64_t tokens, int64_t documents) {
  const std::string bin = get_file(scratch.file(name + ".bin")), idx = get_file(scratch.file(name + ".idx"));
  return R"({"name": ")" + name + R"(", "tokens": )" + std::to_string(tokens) + R"(, "documents": )" +
         std::to_string(documents) + R"(, "bin": {"bytes": )" + std::to_string(bin.size()) + R"(, "xxh3": ")" +
         hex(xxh3(bin)) + R"("}, "idx": {"bytes": )" + std::to_string(idx.size()) + R"(, "xxh3": ")" + hex(xxh3(idx)) +
         R"("}})";
}

struct KeelFolder {
  Scratch scratch;
  std::string manifest;

  KeelFolder() {
    write_megatron(scratch, "train-00000", {{5, 6, 2}, {7, 2}});
    write_megatron(scratch, "train-00001", {{8, 2}});
    write_megatron(scratch, "val-00000", {{9, 2}});
    scratch.write("m.model", "tokenizer");
    manifest = R"({"schema": "keel.tokens/1", "extra": 1, "tokenizer": {"file": "m.model", "sha256": ")" +
               sha256_hex("tokenizer") + R"(", "vocab_size": 330, "eod_id": 2}, "shards": [)" +
               shard_entry(scratch, "val-00000", 2, 1) + ", " + shard_entry(scratch, "train-00001", 2, 1) + ", " +
               shard_entry(scratch, "train-00000", 5, 2) + "]}";
    scratch.write("manifest.json", manifest);
  }
  std::string refuse_with(const std::string& old_text, const std::string& new_text) const {
    std::string changed = manifest;
    changed.replace(changed.find(old_text), old_text.size(), new_text);
    scratch.write("manifest.json", changed);
    return open_error(ErrorKind::format, scratch.file(""));
  }
};

TEST(KeelFolder, Opens) {
  const KeelFolder folder;
  const TokenData data = open_token_data(folder.scratch.file(""));
  EXPECT_EQ(data.format, DataFormat::keel);
  EXPECT_EQ(data.vocab_size, 330);
  EXPECT_EQ(data.eod_id, 2);
  EXPECT_EQ(std::filesystem::path(data.tokenizer_path).filename(), "m.model");
  EXPECT_EQ(data.tokenizer_sha256, sha256_hex("tokenizer"));
  EXPECT_EQ(all_tokens(*data.train), (std::vector<int32_t>{5, 6, 2, 7, 2, 8, 2}));
  EXPECT_EQ(all_tokens(*data.val), (std::vector<int32_t>{9, 2}));
  for (int64_t i : {0, 1}) EXPECT_EQ(data.train->shards()[i].xxh3, data.train->compute_xxh3(i));
  EXPECT_NO_THROW(data.train->verify_hashes());
}

TEST(KeelFolder, HashesFindAlteredShards) {
  const KeelFolder folder;
  std::string bin = get_file(folder.scratch.file("train-00001.bin"));
  bin[0] ^= 1;
  folder.scratch.write("train-00001.bin", bin);
  const TokenData data = open_token_data(folder.scratch.file(""));
  EXPECT_HAS(message_of(ErrorKind::format, [&] { data.train->verify_hashes(); }), "train-00001.bin");
}

TEST(KeelFolder, ManifestAndFilesMustAgree) {
  const KeelFolder folder;
  EXPECT_HAS(folder.refuse_with("keel.tokens/1", "keel.tokens/9"), "keel.tokens/9");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": 6)"), "5 tokens, the manifest says 6");
  EXPECT_HAS(folder.refuse_with(R"("documents": 2)", R"("documents": 1)"), "2 documents, the manifest says 1");
  EXPECT_HAS(folder.refuse_with(R"("bytes": 10)", R"("bytes": 12)"), "10 bytes, the manifest says 12");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": -5)"), "manifest.json:1:");
  EXPECT_HAS(folder.refuse_with(R"("tokens": 5)", R"("tokens": 5.5)"), "not a count");
  EXPECT_HAS(folder.refuse_with("train-00001", "train-00000"), "twice");
  EXPECT_HAS(folder.refuse_with("train-00001", "../train-00001"), "not a file name");
  EXPECT_HAS(folder.refuse_with(R"("file": "m.model")", R"("file": "/etc/passwd")"), "not a file name");
  EXPECT_HAS(folder.refuse_with(R"("shards")", R"("shrads")"), "shards");
  folder.scratch.write("m.model", "another");
  EXPECT_HAS(folder.refuse_with("extra", "other"), "tokenizer");
  folder.scratch.write("m.model", "tokenizer");
  write_megatron(folder.scratch, "train-00002", {{1}});
  EXPECT_HAS(folder.refuse_with("extra", "other"), "train-00002.bin");
  folder.scratch.write("manifest.json", folder.manifest.substr(0, 200));
  open_error(ErrorKind::format, folder.scratch.file(""));
}

TEST(KeelFolder, MissingFiles) {
  const KeelFolder folder;
  std::filesystem::remove(folder.scratch.file("train-00001.idx"));
  EXPECT_HAS(open_error(ErrorKind::io, folder.scratch.file("")), "train-00001.idx");
  const Scratch empty;
  EXPECT_HAS(open_error(ErrorKind::io, empty.file(""), DataFormat::keel), "manifest.json");
}

// --- hostile files --------------------------------------------------------------------------------------------------

/// Opens and reads everything that opening allows; only Error may come out.
void use_all(const std::string& path) {
  try {
    const TokenData data = open_token_data(path);
    for (const auto& stream : {data.train, data.val}) {
      if (!stream || stream->tokens() > 100000) continue;
      if (stream->has_documents()) (void)stream->document_starts(0, stream->tokens());
      (void)all_tokens(*stream);
    }
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
  }
}

std::string mutate(std::string bytes, Random& random) {
  const int64_t changes = random.integer(1, 4);
  for (int64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = random.integer(0, static_cast<int64_t>(bytes.size()) - 1);
    switch (random.integer(0, 4)) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random.integer(0, 7));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.next());
        break;
      case 2:
        bytes.erase(at, random.integer(1, 9));
        break;
      case 3:
        bytes.insert(at, random.integer(1, 9), static_cast<char>(random.next()));
        break;
      case 4:
        bytes.replace(at, 8, bytes_of(random.next() >> random.integer(0, 63)));
        break;
    }
  }
  return bytes;
}

TEST(Fuzz, MutatedShardsNeverCrash) {
  const Scratch scratch;
  Random random(20260101);
  const std::string llmc = llmc_shard(20240520, 1, 5, kExampleTokens);
  for (int i = 0; i < 1500; ++i) {
    scratch.write("p.idx", mutate(kExampleIndex, random));
    scratch.write("p.bin", i % 4 == 0 ? mutate(kExampleTokens, random) : kExampleTokens);
    use_all(scratch.file("p"));
    scratch.write("l/l.bin", i % 2 == 0 ? mutate(llmc.substr(0, 16), random) + llmc.substr(16) : mutate(llmc, random));
    use_all(scratch.file("l/l.bin"));
  }
}

TEST(Fuzz, MutatedManifestsNeverCrash) {
  const KeelFolder folder;
  Random random(7);
  for (int i = 0; i < 1500; ++i) {
    folder.scratch.write("manifest.json", mutate(folder.manifest, random));
    use_all(folder.scratch.file(""));
  }
}

}  // namespace
}  // namespace keel
