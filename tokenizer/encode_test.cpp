#include "keel/tokenizer/encode.h"

#include <csignal>
#include <nlohmann/json.hpp>

#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/signals.h"
#include "keel/data/shard_reader.h"
#include "keel/tokenizer/encode_report.h"
#include "keel/tokenizer/encode_settings.h"
#include "keel/tokenizer/test_support.h"
#include "keel/tokenizer/text_commands.h"
#include "keel/tokenizer/token_dataset.h"

namespace keel {
namespace {

using Documents = std::vector<std::vector<int64_t>>;

class EncodeTest : public ::testing::Test {
 protected:
  // Runs over files a, b, ... with these contents.
  EncodeResult encode(const std::vector<std::string>& contents) {
    std::vector<InputFile> files;
    for (size_t i = 0; i < contents.size(); ++i) {
      const std::string path = folder_ / std::string(1, static_cast<char>('a' + i)) + suffix_;
      test::write_bytes(path, contents[i]);
      files.push_back({path, static_cast<int64_t>(contents[i].size())});
    }
    out_ = folder_ / "out" + std::to_string(++runs_);
    std::filesystem::create_directories(out_);
    return encode_files(files, *test::model_m(), options_, out_, no_progress());
  }
  Documents documents(const std::string& shard = "train-00000") const {
    const ShardReader reader(out_ + "/" + shard);
    Documents all;
    for (int64_t k = 0; k < reader.documents(); ++k) reader.read_document(k, all.emplace_back());
    return all;
  }
  // Every output file, by name.
  std::map<std::string, std::string> output() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(out_)) {
      files[entry.path().filename().string()] = test::read_bytes(entry.path().string());
    }
    return files;
  }
  std::string manifest_text(const EncodeResult& result, const std::string& tokenizer_file) const {
    return data_manifest_text(manifest_of(result, *test::model_m(), tokenizer_file),
                              manifest_details(result, options_));
  }
  void expect_failure(std::string_view message, const std::vector<std::string>& contents) {
    test::expect_error(ErrorKind::format, message, [&] { encode(contents); });
  }

  test::TemporaryFolder folder_;
  EncodeOptions options_;
  std::string suffix_ = ".jsonl";
  std::string out_;
  int runs_ = 0;
};

TEST_F(EncodeTest, EmptyDocumentsAreDroppedAndCounted) {
  const EncodeResult result = encode({"{\"text\":\"\"}\n{\"text\":\"the cat\"}\n{\"text\":\"\"}\n"});
  EXPECT_EQ(output()["train-00000.bin"], test::bytes_of_hex("1b0119010200"));
  EXPECT_EQ(result.records, 3);
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.drops[DropReason::empty], 2);
  EXPECT_EQ(result.tokens, 3);
  EXPECT_EQ(result.text_bytes, 7);
  options_.keep_empty = true;
  const EncodeResult kept = encode({"{\"text\":\"\"}\n{\"text\":\"the cat\"}\n{\"text\":\"\"}\n"});
  EXPECT_EQ(kept.documents, 3);
  EXPECT_EQ(documents(), (Documents{{}, {283, 281, 2}, {}}));
}

TEST_F(EncodeTest, LengthsPointersAndBytesAgree) {
  encode({"{\"text\":\"the cat\"}\n{\"text\":\"at\"}\n"});
  EXPECT_EQ(output()["train-00000.bin"], test::bytes_of_hex("1b011901020011010200"));
  EXPECT_EQ(output()["train-00000.idx"].size(), 82u);
  EXPECT_EQ(documents(), (Documents{{283, 281, 2}, {273, 2}}));
}

TEST_F(EncodeTest, BosAndEodAreIndependent) {
  const auto ids = [&](bool bos, bool eod) {
    options_.prepend_bos = bos;
    options_.append_eod = eod;
    encode({"{\"text\":\"the cat\"}"});
    return documents()[0];
  };
  EXPECT_EQ(ids(false, false), (std::vector<int64_t>{283, 281}));
  EXPECT_EQ(ids(true, false), (std::vector<int64_t>{1, 283, 281}));
  EXPECT_EQ(ids(false, true), (std::vector<int64_t>{283, 281, 2}));
  EXPECT_EQ(ids(true, true), (std::vector<int64_t>{1, 283, 281, 2}));
}

TEST_F(EncodeTest, DataCannotForgeDocumentEnds) {
  encode({"{\"text\":\"</s>\"}\n{\"text\":\"<s>the\"}\n{\"text\":\"<unk>\"}\n"});
  EXPECT_EQ(documents(),
            (Documents{{312, 63, 50, 318, 65, 2}, {312, 63, 318, 65, 313, 282, 2}, {312, 63, 262, 110, 65, 2}}));
}

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

TEST_F(EncodeTest, ByteOrderMarkAndCarriageReturns) {
  const EncodeResult result = encode({"\xEF\xBB\xBF{\"text\":\"the\"}\r\n\r\n{\"text\":\"\\ufeffthe\"}\r\n"});
  EXPECT_EQ(result.records, 2);
  EXPECT_EQ(documents(), (Documents{{283, 2}, {312, 242, 190, 194, 313, 282, 2}}));
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

TEST_F(EncodeTest, ADamagedFileLeavesNothingBehind) {
  std::string lines;
  for (int i = 0; i < 30000; ++i) lines += "{\"text\":\"the cat " + std::to_string(i) + "\"}\n";
  const std::string good = test::gzip(lines), zst = test::zstd(lines);
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
  expect_failure("3 bad records", {ok + bad + bad + bad});
  options_.max_errors.reset();
  options_.max_error_fraction = 0.5;
  EXPECT_EQ(encode({ok + bad}).documents, 1);
  expect_failure("50%", {ok + bad + bad});
}

TEST_F(EncodeTest, OutputDoesNotDependOnWorkers) {
  std::mt19937_64 random(6);
  std::string lines;
  for (int i = 0; i < 20000; ++i) {
    lines += "{\"id\":" + std::to_string(i) + ",\"text\":\"";
    for (size_t words = random() % 40; words > 0; --words) lines += random() % 3 == 0 ? "the cat " : "sat on\\n";
    lines += random() % 500 == 0 ? "\n" : "\"}\n";
  }
  options_.skip_errors = true;
  options_.validation_fraction = 0.05;
  options_.shard_tokens = 30000;
  std::map<std::string, std::string> first;
  std::string manifest;
  for (int workers : {1, 2, 7}) {
    options_.workers = workers;
    const EncodeResult result = encode({lines, test::gzip(lines), "", test::zstd(lines)});
    const std::string text = manifest_text(result, "m.model");
    if (first.empty()) {
      first = output();
      manifest = text;
      EXPECT_GT(first.size(), 10u);
      EXPECT_TRUE(first.contains("val-00000.bin"));
    }
    EXPECT_EQ(output(), first);
    EXPECT_EQ(text, manifest);
  }
}

TEST_F(EncodeTest, TheFirstErrorIsTheFirstInTheInput) {
  std::string lines;
  for (int i = 0; i < 60000; ++i) lines += i % 20000 == 15000 ? "{\n" : "{\"text\":\"the cat sat\"}\n";
  for (int workers : {1, 3}) {
    options_.workers = workers;
    expect_failure("a.jsonl:15001, byte 345000", {lines});
  }
}

TEST_F(EncodeTest, ShardsTakeWholeDocuments) {
  options_.shard_tokens = 6;
  const std::string cat = "{\"text\":\"the cat\"}\n", long_one = "{\"text\":\"the cat the cat the cat the cat\"}\n";
  const EncodeResult result = encode({cat + cat + cat + long_one + cat});
  ASSERT_EQ(result.shards.size(), 4u);
  const int64_t wanted[] = {6, 3, 9, 3};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(result.shards[i].tokens, wanted[i]);
    EXPECT_EQ(result.shards[i].bin.xxh3, xxh3_of_file(out_ + "/" + result.shards[i].name + ".bin"));
    EXPECT_EQ(result.shards[i].idx.sha256, sha256_of_file(out_ + "/" + result.shards[i].name + ".idx"));
  }
  EXPECT_EQ(result.shards[3].name, "train-00003");
}

TEST_F(EncodeTest, LongDocumentsBecomeSeveralSequences) {
  options_.split_long = 2;
  encode({"{\"text\":\"the cat the cat\"}\n{\"text\":\"at\"}\n"});
  const ShardReader reader(out_ + "/train-00000");
  EXPECT_EQ(reader.documents(), 2);
  EXPECT_EQ(reader.sequences(), 4);  // 2 + 2 + 1, and 2
  EXPECT_EQ(documents(), (Documents{{283, 281, 283, 281, 2}, {273, 2}}));
}

TEST_F(EncodeTest, ListsBecomeSequencesWithOneEod) {
  options_.documents.text_is_list = true;
  options_.prepend_bos = true;
  encode({"{\"text\":[\"the cat\",\"\",\"at\"]}\n"});
  const ShardReader reader(out_ + "/train-00000");
  EXPECT_EQ(reader.documents(), 1);
  EXPECT_EQ(reader.sequences(), 2);
  EXPECT_EQ(documents(), (Documents{{1, 283, 281, 273, 2}}));
}

TEST_F(EncodeTest, TheValidationSideIsAFunctionOfTheText) {
  std::string lines, reversed;
  for (int i = 0; i < 2000; ++i) {
    const std::string line = "{\"text\":\"cat " + std::to_string(i) + "\"}\n";
    lines += line;
    reversed = line + reversed;
  }
  options_.validation_fraction = 0.1;
  encode({lines});
  Documents forward = documents("val-00000");
  EXPECT_NEAR(static_cast<double>(forward.size()), 200, 60);
  encode({reversed});
  Documents backward = documents("val-00000");
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  options_.validation_fraction = 1;
  encode({lines});
  EXPECT_FALSE(output().contains("train-00000.bin"));
}

TEST_F(EncodeTest, TextFiles) {
  suffix_ = ".txt";
  EncodeResult result = encode({"the cat\nat", "at"});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(documents()[1], (std::vector<int64_t>{273, 2}));
  options_.text_rule = {RecordRule::Kind::lines};
  result = encode({"the cat\n\nat\n"});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.drops[DropReason::empty], 1);
  options_.text_rule = {RecordRule::Kind::mark, "<|end|>"};
  encode({"the cat\n<|end|>\nat\n<|end|>\n"});
  EXPECT_EQ(documents(), (Documents{{283, 281, 2}, {273, 2}}));
}

TEST_F(EncodeTest, PartsGiveTheWholeInOrder) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\":\"cat " + std::to_string(i) + "\"}\n";
  encode({lines, test::gzip(lines)});
  const Documents whole = documents();
  Documents together;
  options_.parts = 3;
  for (options_.part = 0; options_.part < 3; ++options_.part) {
    encode({lines, test::gzip(lines)});
    const Documents part = documents();
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_EQ(together, whole);
}

TEST_F(EncodeTest, UnusableCombinationsAreRefusedAtOnce) {
  options_.type = TokenDtype::uint16;
  encode({"{\"text\":\"the\"}"});
  options_.type = TokenDtype::int32;
  encode({"{\"text\":\"the\"}"});
  EXPECT_EQ(output()["train-00000.bin"].size(), 8u);
}

TEST_F(EncodeTest, ASignalStopsTheRun) {
  request_stop(SIGTERM);
  EXPECT_THROW(encode({"{\"text\":\"the\"}\n"}), Stopped);
  clear_stop();
}

TEST_F(EncodeTest, ReadsBackWhatItWrote) {
  const EncodeResult result = encode({"{\"text\":\"the cat\"}\n{\"text\":\" two\\nlines 🚀\"}\n"});
  test::write_bytes(out_ + "/tokenizer.model", test::read_bytes(test::model_m_path()));
  test::write_bytes(out_ + "/manifest.json", manifest_text(result, "tokenizer.model"));
  const TokenDataset data(out_);
  EXPECT_EQ(data.documents(), 2);
  EXPECT_EQ(data.manifest()->tokenizer->eod_id, 2);
  EXPECT_EQ(data.manifest()->tokenizer->vocab_size, 330);
  const auto printed = [&](const char* range, bool json) {
    std::string text;
    print_documents(data, *test::model_m(), parse_document_range(range, 2), json,
                    [&](std::string_view part) { text += part; });
    return text;
  };
  EXPECT_EQ(printed("1", false), " two\nlines 🚀");
  EXPECT_EQ(printed("0:2", false), "the cat\n two\nlines 🚀\n");
  EXPECT_EQ(printed(":1", false), "the cat");
  EXPECT_EQ(printed("1:", true), "{\"document\":1,\"text\":\" two\\nlines 🚀\"}\n");
  for (const char* bad : {"", "2", "1:3", "2:1", "x", "-1", "1:y"}) {
    test::expect_error(ErrorKind::usage, "--doc", [&] { parse_document_range(bad, 2); });
  }
  EXPECT_EQ(data.verify(no_progress()).at(0).ids->largest, data.verify(no_progress()).at(0).ids->largest);

  std::string bin = output()["train-00000.bin"];
  bin[0] = static_cast<char>(bin[0] ^ 1);
  test::write_bytes(out_ + "/train-00000.bin", bin);
  test::expect_error(ErrorKind::format, "train-00000.bin", [&] { TokenDataset(out_).verify(no_progress()); });
  test::write_bytes(out_ + "/train-00000.bin", bin.substr(2));
  test::expect_error(ErrorKind::format, "train-00000.bin", [&] { TokenDataset{out_}; });
}

TEST(EncodeSettings, AreCheckedWithTheirPlace) {
  const auto resolve = [](const std::vector<std::string>& assignments) {
    Config config(encode_schema());
    for (const std::string& assignment : assignments) config.apply_set(assignment);
    return resolve_encode_options(config, 3);
  };
  const EncodeOptions defaults = resolve({});
  EXPECT_EQ(defaults.workers, 3);
  EXPECT_EQ(defaults.shard_tokens, 1000000000);
  EXPECT_EQ(defaults.documents.max_bytes, int64_t{1} << 30);
  EXPECT_TRUE(defaults.append_eod);
  EXPECT_EQ(defaults.text_rule.kind, RecordRule::Kind::whole);
  EXPECT_EQ(resolve({"shard_tokens=2G"}).shard_tokens, 2000000000);
  EXPECT_EQ(resolve({"part=2/4"}).part, 1);
  EXPECT_EQ(resolve({"on_error=skip", "max_errors=0.1%"}).max_error_fraction, 0.001);
  EXPECT_EQ(resolve({"on_error=skip", "max_errors=10"}).max_errors, 10);
  EXPECT_EQ(resolve({"documents=<|end|>"}).text_rule.mark, "<|end|>");
  EXPECT_EQ(resolve({"where=[\"a>=3\",\"b==x\"]"}).documents.conditions.size(), 2u);
  const auto refused = [&](const std::vector<std::string>& assignments, std::string_view message) {
    test::expect_error(ErrorKind::config, message, [&] { resolve(assignments); });
  };
  refused({"part=0/4"}, "from 1 to N");
  refused({"part=5/4"}, "from 1 to N");
  refused({"part=2"}, "share");
  refused({"max_errors=10"}, "--on-error skip");
  refused({"on_error=skip", "max_errors=many"}, "neither");
  refused({"on_error=skip", "max_errors=101%"}, "share");
  refused({"format=parquet"}, "parquet");
  refused({"format=json"}, "json");
  refused({"dtype=int16"}, "dtype");
}

}  // namespace
}  // namespace keel
