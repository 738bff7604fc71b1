#include "keel/tokenizer/encode.h"

#include "keel/tokenizer/encode_fixture.h"

namespace keel {
namespace {

using testing::Documents;
using testing::EncodeTest;

TEST_F(EncodeTest, EmptyDocumentsAreDroppedAndCounted) {
  const EncodeResult result = encode({"{\"text\":\"\"}\n{\"text\":\"the cat\"}\n{\"text\":\"\"}\n"});
  EXPECT_EQ(output()["train-00000.bin"], testing::from_hex("1b0119010200"));
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

TEST_F(EncodeTest, AManifestCountsTheDocumentsOfItsShards) {
  options_.keep_empty = true;
  options_.validation_fraction = 1;  // the empty document stays in training, alone
  const EncodeResult result = encode({"{\"text\":\"\"}\n{\"text\":\"the cat\"}\n"});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.drops[DropReason::empty], 1);
  testing::put_file(out_ + "/manifest.json", manifest_text(result, "tokenizer.model"));
  EXPECT_EQ(read_data_manifest(out_).documents, 1);
}

TEST_F(EncodeTest, LengthsPointersAndBytesAgree) {
  encode({"{\"text\":\"the cat\"}\n{\"text\":\"at\"}\n"});
  EXPECT_EQ(output()["train-00000.bin"], testing::from_hex("1b011901020011010200"));
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

TEST_F(EncodeTest, ByteOrderMarkAndCarriageReturns) {
  const EncodeResult result = encode({"\xEF\xBB\xBF{\"text\":\"the\"}\r\n\r\n{\"text\":\"\\ufeffthe\"}\r\n"});
  EXPECT_EQ(result.records, 2);
  EXPECT_EQ(documents(), (Documents{{283, 2}, {312, 242, 190, 194, 313, 282, 2}}));
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

TEST_F(EncodeTest, UnusableCombinationsAreRefusedAtOnce) {
  options_.type = TokenDtype::uint16;
  encode({"{\"text\":\"the\"}"});
  options_.type = TokenDtype::int32;
  encode({"{\"text\":\"the\"}"});
  EXPECT_EQ(output()["train-00000.bin"].size(), 8u);
}

}  // namespace
}  // namespace keel
