#include <random>

#include "keel/base/hash.h"
#include "keel/tokenizer/encode_fixture.h"
#include "keel/tokenizer/text_commands.h"
#include "keel/tokenizer/token_dataset.h"

namespace keel {
namespace {

using testing::Documents;
using testing::EncodeTest;

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
    const EncodeResult result = encode({lines, testing::gzip(lines), "", testing::zstd(lines)});
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

TEST_F(EncodeTest, PartsGiveTheWholeInOrder) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\":\"cat " + std::to_string(i) + "\"}\n";
  encode({lines, testing::gzip(lines)});
  const Documents whole = documents();
  Documents together;
  options_.parts = 3;
  for (options_.part = 0; options_.part < 3; ++options_.part) {
    encode({lines, testing::gzip(lines)});
    const Documents part = documents();
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_EQ(together, whole);
}

TEST_F(EncodeTest, ReadsBackWhatItWrote) {
  const EncodeResult result = encode({"{\"text\":\"the cat\"}\n{\"text\":\" two\\nlines 🚀\"}\n"});
  testing::put_file(out_ + "/tokenizer.model", testing::get_file(testing::model_m_path()));
  testing::put_file(out_ + "/manifest.json", manifest_text(result, "tokenizer.model"));
  const TokenDataset data(out_);
  EXPECT_EQ(data.documents(), 2);
  EXPECT_EQ(data.manifest()->tokenizer->eod_id, 2);
  EXPECT_EQ(data.manifest()->tokenizer->vocab_size, 330);
  const auto printed = [&](const char* range, bool json) {
    std::string text;
    print_documents(data, *testing::model_m(), parse_document_range(range, 2), {.json = json},
                    [&](std::string_view part) { text += part; });
    return text;
  };
  EXPECT_EQ(printed("1", false), " two\nlines 🚀");
  EXPECT_EQ(printed("0:2", false), "the cat\n two\nlines 🚀\n");
  EXPECT_EQ(printed(":1", false), "the cat");
  EXPECT_EQ(printed("1:", true), "{\"document\":1,\"text\":\" two\\nlines 🚀\"}\n");
  for (const char* bad : {"", "2", "1:3", "2:1", "x", "-1", "1:y"}) {
    testing::expect_error(ErrorKind::usage, "--doc", [&] { parse_document_range(bad, 2); });
  }
  EXPECT_EQ(data.verify(no_progress()).at(0).ids->largest, data.verify(no_progress()).at(0).ids->largest);

  std::string bin = output()["train-00000.bin"];
  bin[0] = static_cast<char>(bin[0] ^ 1);
  testing::put_file(out_ + "/train-00000.bin", bin);
  testing::expect_error(ErrorKind::format, "train-00000.bin", [&] { TokenDataset(out_).verify(no_progress()); });
  testing::put_file(out_ + "/train-00000.bin", bin.substr(2));
  testing::expect_error(ErrorKind::format, "train-00000.bin", [&] { TokenDataset{out_}; });
}

}  // namespace
}  // namespace keel
