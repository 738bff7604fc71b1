#include "keel/data/shard_writer.h"

#include <sys/resource.h>

#include <deque>

#include "keel/data/shard_reader.h"
#include "support/open_data.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

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

TEST(ShardWriter, TheExampleOfTheFormat) {
  const Scratch scratch;
  ShardWriter shard(scratch.file("a"), TokenDtype::uint16);
  append_ids<uint16_t>(shard, {{10, 11, 12}});
  append_ids<uint16_t>(shard, {{13, 65535}});
  shard.finish();
  EXPECT_EQ(get_file(scratch.file("a.idx")),
            from_hex("4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 03000000 02000000"
                     "0000000000000000 0600000000000000 0000000000000000 0100000000000000 0200000000000000"));
  EXPECT_EQ(get_file(scratch.file("a.bin")), from_hex("0a000b000c000d00ffff"));
  const ShardReader reader(scratch.file("a"));
  EXPECT_EQ(reader.documents(), 2);
  EXPECT_EQ(reader.tokens(), 5);
  EXPECT_EQ(document(reader, 1), (std::vector<int64_t>{13, 65535}));
  EXPECT_EQ(reader.id_range()->smallest, 10);
  EXPECT_EQ(reader.id_range()->largest, 65535);
}

TEST(ShardWriter, TheTypeFollowsTheLargestId) {
  EXPECT_EQ(token_dtype_for(65535), TokenDtype::uint16);
  EXPECT_EQ(token_dtype_for(65536), TokenDtype::int32);
  EXPECT_EQ(megatron_code(TokenDtype::uint16), 8);
  EXPECT_EQ(megatron_code(TokenDtype::int32), 4);
}

TEST(ShardWriter, BothTypesReadBackTheSame) {
  const Scratch scratch;
  ShardWriter narrow(scratch.file("n"), TokenDtype::uint16), wide(scratch.file("w"), TokenDtype::int32);
  append_ids<uint16_t>(narrow, {{0, 69}, {5}});
  append_ids<int32_t>(wide, {{0, 69}, {5}});
  narrow.finish();
  wide.finish();
  const ShardReader a(scratch.file("n")), b(scratch.file("w"));
  EXPECT_EQ(a.type(), TokenDtype::uint16);
  EXPECT_EQ(b.type(), TokenDtype::int32);
  EXPECT_EQ(document(a, 0), document(b, 0));
  EXPECT_EQ(a.sequences(), 2);
  EXPECT_EQ(a.documents(), 1);
}

TEST(ShardWriter, EmptyDocumentsAndEmptySets) {
  const Scratch scratch;
  ShardWriter shard(scratch.file("a"), TokenDtype::uint16);
  append_ids<uint16_t>(shard, {});
  append_ids<uint16_t>(shard, {{7}});
  append_ids<uint16_t>(shard, {});
  shard.finish();
  const ShardReader reader(scratch.file("a"));
  EXPECT_EQ(reader.documents(), 3);
  EXPECT_EQ(reader.sequences(), 1);
  EXPECT_TRUE(document(reader, 0).empty());
  EXPECT_EQ(document(reader, 1), std::vector<int64_t>{7});
  ShardWriter none(scratch.file("none"), TokenDtype::uint16);
  none.finish();
  const ShardReader nothing(scratch.file("none"));
  EXPECT_EQ(nothing.documents(), 0);
  EXPECT_EQ(nothing.index().bytes(), 42);
  EXPECT_FALSE(nothing.id_range());
}

TEST(ShardWriter, RewindsToAMark) {
  const Scratch scratch;
  ShardWriter shard(scratch.file("a"), TokenDtype::uint16), wanted(scratch.file("b"), TokenDtype::uint16);
  append_ids<uint16_t>(shard, {{1, 2}});
  const ShardWriter::Mark mark = shard.mark();
  append_ids<uint16_t>(shard, {{3}, {4, 5}});
  shard.rewind(mark);
  append_ids<uint16_t>(shard, {{6}});
  shard.finish();
  append_ids<uint16_t>(wanted, {{1, 2}});
  append_ids<uint16_t>(wanted, {{6}});
  wanted.finish();
  EXPECT_EQ(get_file(scratch.file("a.bin")), get_file(scratch.file("b.bin")));
  EXPECT_EQ(get_file(scratch.file("a.idx")), get_file(scratch.file("b.idx")));
}

TEST(ShardWriter, LengthsEndAt31Bits) {
  const Scratch scratch;
  ShardWriter shard(scratch.file("a"), TokenDtype::uint16);
  const int64_t length = int64_t{1} << 31;
  EXPECT_HAS(message_of(ErrorKind::format, [&] { shard.append_document(&length, 1); }), "2147483648 tokens");
}

TEST(ShardReader, ReadsEveryTokenTypeAndModes) {
  const Scratch scratch;
  const auto read = [&](uint8_t code, const std::string& bin, int64_t item) {
    const auto length = static_cast<int32_t>(static_cast<int64_t>(bin.size()) / item);
    scratch.write("a.idx", megatron_index(code, item, {length}, {0, 1}) + '\1');  // with a mode
    scratch.write("a.bin", bin);
    return document(ShardReader(scratch.file("a")), 0);
  };
  EXPECT_EQ(read(1, from_hex("00ff"), 1), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(read(2, from_hex("00ff"), 1), (std::vector<int64_t>{0, -1}));
  EXPECT_EQ(read(3, from_hex("0100ffff"), 2), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(read(8, from_hex("0100ffff"), 2), (std::vector<int64_t>{1, 65535}));
  EXPECT_EQ(read(4, from_hex("00000100ffffffff"), 4), (std::vector<int64_t>{65536, -1}));
  EXPECT_EQ(read(5, from_hex("0000000001000000"), 8), (std::vector<int64_t>{int64_t{1} << 32}));
  EXPECT_EQ(ShardReader(scratch.file("a")).id_range()->smallest, int64_t{1} << 32);
}

TEST(ShardReader, RefusesWhatTheIndexDoesNotDescribe) {
  const Scratch scratch;
  scratch.write("p.idx", kExampleIndex);
  scratch.write("p.bin", kExampleTokens.substr(0, 9));
  EXPECT_HAS(message_of(ErrorKind::format, [&] { ShardReader(scratch.file("p")); }), "truncated: 9 bytes, wanted 10");
  EXPECT_HAS(message_of(ErrorKind::io, [&] { ShardReader(scratch.file("q")); }), "q.idx");
}

TEST(ShardReader, ReadsFilesOfMegatronItself) {
  if (!test_data()) GTEST_SKIP() << "KEEL_TEST_DATA is not set";
  const std::string folder = (*test_data() / "golden/tokens/megatron/").string();
  const ShardReader llama(folder + "c4-sample.01-llama2-eod");
  EXPECT_EQ(llama.documents(), 10);
  EXPECT_EQ(llama.tokens(), 3666);
  EXPECT_EQ(llama.type(), TokenDtype::uint16);
  EXPECT_EQ(document(llama, 9).back(), 2);
  const ShardReader wide(folder + "c4-sample.01-llama3.1-noeod");
  EXPECT_EQ(wide.type(), TokenDtype::int32);
  EXPECT_EQ(wide.tokens(), 3124);
  const ShardReader holes(folder + "empty-docs-gpt2-eod");
  EXPECT_EQ(holes.documents(), 5);
  EXPECT_EQ(holes.sequences(), 3);
  EXPECT_EQ(ShardReader(folder + "no-docs-gpt2").documents(), 0);
}

TEST(ShardWriter, ManyCanWaitWithoutDescriptors) {
  const Scratch scratch;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::deque<ShardWriter> shards;
  for (int i = 0; i < 100; ++i) {
    append_ids<uint16_t>(shards.emplace_back(scratch.file("s" + std::to_string(i)), TokenDtype::uint16), {{1, i}});
    shards.back().suspend();
  }
  const ShardWriter::Mark mark = shards[7].mark();
  append_ids<uint16_t>(shards[7], {{8, 9}});
  shards[7].suspend();
  shards[7].rewind(mark);
  append_ids<uint16_t>(shards[7], {{5}});
  for (ShardWriter& shard : shards) shard.finish();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const ShardReader reader(scratch.file("s7"));
  EXPECT_EQ(reader.documents(), 2);
  EXPECT_EQ(document(reader, 0), (std::vector<int64_t>{1, 7}));
  EXPECT_EQ(document(reader, 1), (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace keel
