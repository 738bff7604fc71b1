#include <csignal>

#include "keel/base/signals.h"
#include "keel/tokenizer/encode_fixture.h"

namespace keel {
namespace {

using testing::Documents;
using testing::EncodeTest;

TEST_F(EncodeTest, HalfSurrogatePairs) {
  const std::string lines =
      "{\"text\":\"\\ud83d\\ude80\"}\n{\"text\":\"\\ud83d\"}\n{\"text\":\"\\udc00\"}\n{\"text\":\"\\ude80\\ud83d\"}\n"
      "{\"text\":\"\\ud83dx\"}\n{\"text\":\"ok\"}\n";
  expect_failure("a.jsonl:2, byte 24", {lines});
  options_.documents.replace_invalid_utf8 = true;
  const EncodeResult result = encode({lines});
  EXPECT_EQ(result.documents, 6);
  EXPECT_EQ(result.replaced_surrogates, 5);
  EXPECT_EQ(documents()[0], (std::vector<int64_t>{312, 243, 162, 157, 131, 2}));
  EXPECT_EQ(documents()[1], (std::vector<int64_t>{312, 242, 194, 192, 2}));
}

TEST_F(EncodeTest, DamageStaysInItsLine) {
  const std::string ok = "{\"text\":\"ok\"}\n";
  const std::string torn = ok + ok + ok + "{\"text\":\"bad\n" + ok + ok + ok;
  expect_failure("a.jsonl:4, byte 42", {torn});
  options_.skip_errors = true;
  EncodeResult result = encode({torn});
  EXPECT_EQ(result.documents, 6);
  EXPECT_EQ(result.drops[DropReason::bad_json], 1);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].notice.line, 4);
  EXPECT_EQ(result.errors[0].notice.byte_offset, 42);
  result = encode({ok + ok + "{\"text\":\"unclosed"});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.drops[DropReason::bad_json], 1);
  result = encode({ok + "{\"text\":\"\xFF\"}\n" + ok});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.drops[DropReason::bad_utf8], 1);
  EXPECT_EQ(result.records, result.documents + result.drops.total());
}

TEST_F(EncodeTest, LongLines) {
  const std::string small = "{\"text\":\"ok\"}\n", large = "{\"text\":\"" + std::string(2000000, 'x') + "\"}\n";
  EXPECT_EQ(encode({small + large + small}).documents, 3);
  options_.documents.max_bytes = 1 << 20;
  expect_failure("a.jsonl:2", {small + large + small});
  options_.skip_errors = true;
  const EncodeResult result = encode({small + large + small});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.drops[DropReason::too_long], 1);
}

TEST_F(EncodeTest, NothingAtAllIsAnError) {
  expect_failure("no tokens", {"{\"text\":\"\"}\n"});
  expect_failure("a.jsonl, 0 bytes", {""});
  expect_failure("1 empty", {"{\"text\":\"\"}\n"});
  const EncodeResult result = encode({"", "{\"text\":\"the\"}\n"});
  EXPECT_EQ(result.empty_files, 1);
  EXPECT_EQ(result.documents, 1);
}

TEST_F(EncodeTest, AWrongFieldIsAnErrorThatNamesTheOthers) {
  expect_failure("fields seen: content, score", {"{\"content\":\"a\",\"score\":1}\n"});
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{\"x\":1}\n";
  expect_failure("first 1000 records", {many + "{\"text\":\"late\"}\n"});
  const EncodeResult result = encode({"{\"x\":1}\n{\"text\":\"the\"}\n" + many});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.drops[DropReason::missing], 1001);
}

TEST_F(EncodeTest, ConditionsNeedTheirFields) {
  options_.documents.conditions = {Condition("lang==en"), Condition("score>1")};
  expect_failure("no field 'score' in the first 2 records", {"{\"text\":\"a\",\"lang\":\"en\"}\n{\"lang\":\"de\"}\n"});
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{\"text\":\"a\",\"lang\":\"en\"}\n";
  expect_failure("first 1000 records", {many + "{\"text\":\"late\",\"lang\":\"en\",\"score\":2}\n"});
  const EncodeResult result = encode({"{\"text\":\"the\",\"lang\":\"en\",\"score\":2}\n" + many});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.drops[DropReason::filtered], 1000);
  suffix_ = ".txt";
  testing::expect_error(ErrorKind::usage, "a.txt", [&] { encode({"the cat"}); });
}

TEST_F(EncodeTest, WholeRecordsBeforeTheDamageCount) {
  suffix_ = ".gz";
  options_.skip_errors = true;
  const std::string three = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n";
  const std::string cut = testing::gzip(three).substr(0, testing::gzip(three).size() - 8);
  const EncodeResult result = encode({cut, "{\"text\":\"the\"}\n"});
  EXPECT_EQ(result.records, 4);
  EXPECT_EQ(result.drops[DropReason::damaged_file], 3);
  EXPECT_EQ(documents(), (Documents{{283, 2}}));
}

TEST_F(EncodeTest, ADamagedFileLeavesNothingBehind) {
  std::string lines;
  for (int i = 0; i < 30000; ++i) lines += "{\"text\":\"the cat " + std::to_string(i) + "\"}\n";
  const std::string good = testing::gzip(lines), zst = testing::zstd(lines);
  std::string bad_check = good;
  bad_check[bad_check.size() - 5] = static_cast<char>(bad_check[bad_check.size() - 5] ^ 0x40);
  suffix_ = ".gz";
  options_.shard_tokens = 50000;  // a damaged file covers several shards
  options_.validation_fraction = 0.1;
  expect_failure("truncated gzip", {good.substr(0, good.size() - 9)});
  options_.skip_errors = true;
  const std::string first = "{\"text\":\"at\"}\n", last = "{\"text\":\"the\"}\n{\"te";
  const EncodeResult result =
      encode({first, good.substr(0, good.size() - 9), lines, zst.substr(0, zst.size() - 1), bad_check, last});
  const auto with_damage = output();
  EXPECT_EQ(result.damaged_files, 3);
  EXPECT_EQ(result.documents, 30002);
  EXPECT_GT(result.drops[DropReason::damaged_file], 30000);
  EXPECT_EQ(result.drops[DropReason::bad_json], 1);
  EXPECT_EQ(result.drops[DropReason::damaged_file] + result.documents + 1, result.records);
  EXPECT_EQ(result.errors.size(), 4u);
  encode({first, lines, last});
  EXPECT_EQ(output(), with_damage);
  expect_failure("no tokens", {good.substr(0, good.size() - 9)});
}

TEST_F(EncodeTest, ErrorsHaveALimit) {
  options_.skip_errors = true;
  const std::string ok = "{\"text\":\"ok\"}\n", bad = "{\n";
  options_.max_errors = 2;
  EXPECT_EQ(encode({ok + bad + bad}).drops[DropReason::bad_json], 2);
  expect_failure("3 errors in the input", {ok + bad + bad + bad});
  options_.max_errors.reset();
  options_.max_error_fraction = 0.5;
  EXPECT_EQ(encode({ok + bad}).documents, 1);
  expect_failure("50%", {ok + bad + bad});
}

TEST_F(EncodeTest, TheFirstErrorIsTheFirstInTheInput) {
  std::string lines;
  for (int i = 0; i < 60000; ++i) lines += i % 20000 == 15000 ? "{\n" : "{\"text\":\"the cat sat\"}\n";
  for (int workers : {1, 3}) {
    options_.workers = workers;
    expect_failure("a.jsonl:15001, byte 345000", {lines});
  }
}

TEST_F(EncodeTest, ASignalStopsTheRun) {
  request_stop(SIGTERM);
  EXPECT_THROW(encode({"{\"text\":\"the\"}\n"}), Stopped);
  clear_stop();
}

}  // namespace
}  // namespace keel
