#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <random>

#include <nlohmann/json.hpp>
#include <set>

#include "keel/base/hash.h"
#include "keel/tokenizer/golden_support.h"
#include "keel/tokenizer/sentencepiece_model.h"
#include "keel/tokenizer/sentencepiece_tokenizer.h"
#include "keel/tokenizer/test_support.h"
#include "keel/tokenizer/utf8_repair.h"
#include "support/mutate.h"

namespace keel {
namespace {

using Ids = std::vector<int32_t>;

std::string training_text() {
  std::mt19937_64 random(1);
  const char* words[] = {"the", "cat", "sat", "on",  "a",   "mat",  "and",   "ran",
                         "to",  "see", "big", "red", "sun", "fünf", "日本語"};
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text += std::string(words[random() % 15]) + (i % 12 == 11 ? "\n" : i % 5 == 0 ? "   " : " ");
  return text;
}

// A model trained here; `arguments` as of spm_train.
std::string trained_model(const std::string& arguments) {
  testing::Scratch folder;
  testing::put_file(folder.file("text"), training_text());
  const auto status = sentencepiece::SentencePieceTrainer::Train("--minloglevel=5 --input=" + folder.file("text") +
                                                                 " --model_prefix=" + folder.file("m") +
                                                                 " --hard_vocab_limit=false " + arguments);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return testing::get_file(folder.file("m.model"));
}

/// A model, and the library's own processor for it.
struct Pair {
  explicit Pair(const std::string& bytes) : ours(make_sentencepiece_tokenizer(bytes, "model")) {
    EXPECT_TRUE(library.LoadFromSerializedProto(bytes).ok());
  }
  Ids library_ids(const std::string& text) const {
    Ids ids;
    EXPECT_TRUE(library.Encode(text, &ids).ok());
    return ids;
  }
  std::unique_ptr<Tokenizer> ours;
  sentencepiece::SentencePieceProcessor library;
};

// Words, runs of spaces, odd characters and U+2581 in random order.
std::string random_text(std::mt19937_64& random, int parts) {
  const char* kParts[] = {"the", " ",    " ",      "  ",        "cat",  "the cat", "at",      "a",
                          "\n",  "\t",   "\u2581", "\u2581the", "ü",    "日本",    "🚀",       "</s>",
                          "x",   "\r\n", "   ",    "0",         "1984", "\u00a0",  "e\u0301", "ﬁ"};
  std::string text;
  for (int i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
  if (random() % 20 == 0) text.push_back('\0');
  return text;
}

TEST(Sentencepiece, KnownIdsOfModelM) {
  const auto model = testing::model_m();
  EXPECT_EQ(model->encode("the cat"), (Ids{283, 281}));
  EXPECT_EQ(model->encode(" the cat"), (Ids{312, 283, 281}));
  EXPECT_EQ(model->encode("🚀"), (Ids{312, 243, 162, 157, 131}));
  EXPECT_EQ(model->encode("\uFFFD"), (Ids{312, 242, 194, 192}));
  EXPECT_EQ(model->encode("\uFEFFthe"), (Ids{312, 242, 190, 194, 313, 282}));
  EXPECT_EQ(model->encode("ok"), (Ids{312, 317, 110}));
  EXPECT_TRUE(model->encode("").empty());
  EXPECT_EQ(model->encode(" "), (Ids{312, 312}));
  EXPECT_EQ(model->encode("the "), (Ids{283, 312}));
  EXPECT_EQ(model->encode(std::string_view("a\0t", 3)), (Ids{272, 3, 313}));
}

TEST(Sentencepiece, TextNeverBecomesAControlToken) {
  const auto model = testing::model_m();
  EXPECT_EQ(model->encode("</s>"), (Ids{312, 63, 50, 318, 65}));
  EXPECT_EQ(model->encode("<s>the"), (Ids{312, 63, 318, 65, 313, 282}));
  EXPECT_EQ(model->encode("<unk>"), (Ids{312, 63, 262, 110, 65}));
  EXPECT_EQ(model->encode("the</s> cat<s>", SpecialText::parse), (Ids{283, 2, 312, 281, 1}));
}

TEST(Sentencepiece, KnowsItsVocabulary) {
  const auto model = testing::model_m();
  EXPECT_EQ(model->vocab_size(), 330);
  EXPECT_EQ(model->largest_id(), 329);
  EXPECT_EQ(model->bos_id(), 1);
  EXPECT_EQ(model->eos_id(), 2);
  EXPECT_EQ(model->unk_id(), 0);
  EXPECT_EQ(model->pad_id(), std::nullopt);
  EXPECT_EQ(model->piece(283), "\u2581the");
  EXPECT_EQ(model->piece(13), "<0x0A>");
  EXPECT_EQ(model->type(), "sentencepiece-bpe");
  EXPECT_EQ(model->sha256(), sha256_hex(testing::get_file(testing::model_m_path())));
  testing::expect_error(ErrorKind::format, "330", [&] { model->piece(330); });
  testing::expect_error(ErrorKind::format, "330", [&] { model->decode(Ids{330}); });
  testing::expect_error(ErrorKind::format, "-1", [&] { model->decode(Ids{-1}); });
}

// A document is cut only where that changes nothing; cutting anywhere else does.
TEST(Sentencepiece, CutsAreExactAndNaiveOnesAreNot) {
  const Pair pair(testing::get_file(testing::model_m_path()));
  Ids apart = pair.ours->encode("the");
  for (int32_t id : pair.ours->encode(" cat")) apart.push_back(id);
  EXPECT_EQ(apart, (Ids{283, 312, 281}));
  EXPECT_NE(apart, pair.ours->encode("the cat"));

  std::mt19937_64 random(3);
  const std::unique_ptr<TokenEncoder> encoder = pair.ours->make_encoder();  // with its cache
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(random, 1 + static_cast<int>(random() % 30));
    Ids ids;
    encoder->encode(text, ids);
    ASSERT_EQ(ids, pair.library_ids(text)) << text;
  }
  const std::string book = random_text(random, 20000);
  EXPECT_EQ(pair.ours->encode(book), pair.library_ids(book));
}

TEST(Sentencepiece, EveryKindOfModelGivesTheLibrarysIdsAndTexts) {
  const char* kArguments[] = {
      "--model_type=bpe --vocab_size=400 --byte_fallback=true",  // nmt_nfkc, spaces removed
      "--model_type=bpe --vocab_size=400 --normalization_rule_name=identity --remove_extra_whitespaces=false",
      "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false --add_dummy_prefix=false",
      "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false --split_by_whitespace=false",  // pieces across spaces
      "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false --user_defined_symbols=the\u2581cat,\u2581\u2581,at --control_symbols=<pad>",
      "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false --user_defined_symbols=\u2581\u2581,at",  // cut all the same
      "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false --allow_whitespace_only_pieces=true",
      "--model_type=unigram --vocab_size=100",
      "--model_type=unigram --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false",
      "--model_type=char --vocab_size=100",
      "--model_type=word --vocab_size=100",
  };
  for (const char* arguments : kArguments) {
    SCOPED_TRACE(arguments);
    const Pair pair(trained_model(arguments));
    std::mt19937_64 random(5);
    for (int i = 0; i < 400; ++i) {
      const std::string text = random_text(random, 1 + static_cast<int>(random() % 20));
      const Ids wanted = pair.library_ids(text);
      ASSERT_EQ(pair.ours->encode(text), wanted) << text;
      std::string decoded;
      ASSERT_TRUE(pair.library.Decode(wanted, &decoded).ok());
      ASSERT_EQ(pair.ours->decode(wanted), decoded) << text;
    }
    EXPECT_EQ(pair.ours->bos_id().value_or(-1), pair.library.bos_id());
    EXPECT_EQ(pair.ours->eos_id().value_or(-1), pair.library.eos_id());
    EXPECT_EQ(pair.ours->pad_id().value_or(-1), pair.library.pad_id());
    EXPECT_EQ(pair.ours->unk_id().value_or(-1), pair.library.unk_id());
  }
}

TEST(Sentencepiece, RoundTripsEveryTextWithByteFallback) {
  const auto model = testing::model_m();
  std::mt19937_64 random(9);
  for (int i = 0; i < 2000; ++i) {
    std::string text = random_text(random, 1 + static_cast<int>(random() % 20));
    if (text.find("\u2581") != std::string::npos) continue;  // the model reads it as a space
    ASSERT_EQ(model->decode(model->encode(text)), text);
  }
}

TEST(Sentencepiece, DecodesAsTokensCome) {
  const auto model = testing::model_m();
  const std::unique_ptr<TokenDecoder> decoder = model->make_decoder();
  std::string text;
  std::vector<std::string> steps;
  for (int32_t id : Ids{1, 283, 281, 312, 243, 162, 157, 131, 2}) {
    decoder->append(id, text);
    steps.push_back(text);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"", "the", "the cat", "the cat ", "the cat ", "the cat ", "the cat ",
                                             "the cat 🚀", "the cat 🚀"}));
  decoder->append(243, text);  // a character that never ends
  EXPECT_EQ(text, "the cat 🚀");
  decoder->append(283, text);
  EXPECT_EQ(text, "the cat 🚀\uFFFD the");
  decoder->append(243, text);
  decoder->finish(text);
  EXPECT_EQ(text, "the cat 🚀\uFFFD the\uFFFD");
  text.clear();
  decoder->append(283, text);  // a new text
  EXPECT_EQ(text, "the");
}

TEST(Sentencepiece, WhatCannotBeCutHasALimit) {
  const auto model = testing::model_m();
  EXPECT_THROW(model->encode(std::string((64 << 20) + 1, 'x')), TextTooLong);
  const auto normalising = make_sentencepiece_tokenizer(trained_model("--model_type=bpe --vocab_size=400"), "model");
  EXPECT_THROW(normalising->encode(std::string((16 << 20) + 1, 'x')), TextTooLong);
  // With spaces in it the same length is no trouble.
  std::string text;
  while (text.size() < (65u << 20)) text += "the cat sat ";
  EXPECT_EQ(model->encode(text).size(), 3 * text.size() / 12 + 1);
}

TEST(Sentencepiece, OtherFilesAreRefusedByName) {
  testing::Scratch folder;
  const auto refused = [&](ErrorKind kind, std::string_view content, std::string_view message) {
    testing::put_file(folder.file("t"), content);
    testing::expect_error(kind, message, [&] { load_tokenizer(folder.file("t")); });
  };
  refused(ErrorKind::format, "{\"version\": \"1.0\"}", "model");
  refused(ErrorKind::usage, "IQ== 0\nIg== 1\n", "tiktoken");
  refused(ErrorKind::format, "", "empty");
  refused(ErrorKind::format, "hello world, this is text", "not a sentencepiece model");
  refused(ErrorKind::format, std::string(100, '\0'), "not a sentencepiece model");
  refused(ErrorKind::format, "\x12\x00", "not a sentencepiece model");
  testing::expect_error(ErrorKind::io, "missing", [&] { load_tokenizer(folder.file("missing")); });
}

TEST(Sentencepiece, IsFoundInFolders) {
  testing::Scratch folder;
  testing::expect_error(ErrorKind::io, "no tokenizer", [&] { load_tokenizer(folder.path()); });
  const std::string model = testing::get_file(testing::model_m_path());
  testing::put_file(folder.file("other.model"), model);
  EXPECT_EQ(load_tokenizer(folder.path())->path(), folder.path() / "other.model");
  testing::put_file(folder.file("second.model"), model);
  testing::expect_error(ErrorKind::usage, "several", [&] { load_tokenizer(folder.path()); });
  testing::put_file(folder.file("tokenizer.model"), model);
  EXPECT_EQ(load_tokenizer(folder.path())->path(), folder.path() / "tokenizer.model");
}

// Damaged models: one Error(format), or a model that works; never a crash, an abort or a word on stderr.
class DamagedModel : public ::testing::Test {
 protected:
  void try_mutations(const std::string& bytes, int count, uint64_t seed) {
    testing::Random random(seed);
    int refused = 0;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < count; ++i) {
      try {
        const auto model = make_sentencepiece_tokenizer(testing::mutated(bytes, random), "model");
        const Ids ids = model->encode("the cat sat on a \u00e9\u0301 ﬁ 日本語 mat\n  </s>");
        model->decode(ids);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::format && error.kind() != ErrorKind::usage) FAIL() << error.what();
        ++refused;
      }
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_GT(refused, count / 10);
  }
};

TEST_F(DamagedModel, Bpe) {
  try_mutations(testing::get_file(testing::model_m_path()), 3000, 1);
}

// The head of the file (pieces), and the compiled normalisation rules, which the library follows blindly.
TEST_F(DamagedModel, NormalisationRules) {
  const std::string bytes = trained_model("--model_type=unigram --vocab_size=60");
  const SentencepieceModel model = parse_sentencepiece_model(bytes, "model");
  const size_t rules = bytes.find(model.charsmap);
  ASSERT_NE(rules, std::string::npos);
  std::mt19937_64 random(2);
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 3; ++k) {
      const size_t at = rules + random() % (i % 2 == 0 ? 4096 : model.charsmap.size());
      damaged[at] = static_cast<char>(random());
    }
    try {
      const auto tokenizer = make_sentencepiece_tokenizer(damaged, "model");
      for (uint32_t c = 0x20; c < 0x3000; c += 127) {
        const char text[] = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                             static_cast<char>(0x80 | (c & 0x3F))};
        if (c >= 0x800) tokenizer->encode({text, 3});
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::format) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

// ---- independent values ----

int compare_with_golden(const std::string& model, const std::string& golden) {
  const auto tokenizer = load_tokenizer(testing::test_data()->string() + "/data/tokenizers/sentencepiece/" + model);
  const auto by_id = testing::golden_lines(golden);
  int compared = 0;
  for (const auto& [id, bytes] : testing::golden_documents()) {
    const auto found = by_id.find(id);
    if (found == by_id.end()) continue;
    std::string text;
    append_replacing_invalid_utf8(bytes, text);
    testing::expect_golden(found->second, tokenizer->encode(text), id);
    ++compared;
  }
  return compared;
}

TEST(SentencepieceGolden, Llama2) {
  KEEL_NEEDS_TEST_DATA();
  EXPECT_GE(compare_with_golden("llama2/tokenizer.model", "spm-llama2"), 580);
  const auto tokenizer = load_tokenizer(testing::test_data()->string() + "/data/tokenizers/sentencepiece/llama2");
  EXPECT_EQ(tokenizer->encode("\U00012397\U0001340D"), (Ids{29871, 243, 149, 145, 154, 243, 150, 147, 144}));
}

TEST(SentencepieceGolden, Mistral) {
  KEEL_NEEDS_TEST_DATA();
  EXPECT_GE(compare_with_golden("mistral/tokenizer.model.v1", "spm-mistral-v1"), 580);
}

TEST(SentencepieceGolden, Tok512) {
  KEEL_NEEDS_TEST_DATA();
  EXPECT_GE(compare_with_golden("stories260K/tok512.model", "spm-tok512"), 580);
}

// Unigram paths of equal score may differ between versions of the library: the one at hand decides.
TEST(SentencepieceGolden, UnigramModelsGiveTheLibrarysIds) {
  KEEL_NEEDS_TEST_DATA();
  for (const char* name : {"t5-v1_1/spiece.model", "spm-test/test_model.model", "spm-test/test_ja_model.model"}) {
    const Pair pair(testing::get_file(testing::test_data()->string() + "/data/tokenizers/sentencepiece/" + name));
    for (const nlohmann::json& entry :
         testing::json_lines(testing::get_file(testing::test_data()->string() + "/golden/tokens/texts.jsonl"))) {
      const std::string text = testing::golden_text(entry);
      ASSERT_EQ(pair.ours->encode(text), pair.library_ids(text)) << name << " " << entry["id"];
    }
  }
}

TEST(SentencepieceFolder, BosAsTheFilesBesideTheModelSay) {
  const testing::Scratch folder;
  testing::put_file(folder.file("tokenizer.model"), trained_model("--model_type=bpe --vocab_size=300"));
  const auto adds = [&](const std::string& config) {
    testing::put_file(folder.file("tokenizer_config.json"), config);
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->files().size(), 2U);
    return std::pair(tokenizer->adds_bos(), tokenizer->adds_eos());
  };
  EXPECT_FALSE(load_tokenizer(folder.path())->adds_bos());
  EXPECT_EQ(adds(R"({})"), std::pair(false, false));
  EXPECT_EQ(adds(R"({"tokenizer_class": "LlamaTokenizer"})"), std::pair(true, false));
  EXPECT_EQ(adds(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})"), std::pair(false, false));
  EXPECT_EQ(adds(R"({"add_bos_token": true, "add_eos_token": true})"), std::pair(true, true));
}

}  // namespace
}  // namespace keel
