#include <sentencepiece_trainer.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/tokenizer/json_tokenizer.h"
#include "keel/tokenizer/prompt.h"
#include "keel/tokenizer/sentencepiece_tokenizer.h"
#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

using nlohmann::json;

std::unique_ptr<Tokenizer> loaded(const std::string& name, const json& changes) {
  json file = json::parse(testing::get_file(std::string(KEEL_TOKENIZER_TEST_DATA) + "/tiny_" + name + ".json"));
  for (const auto& [key, value] : changes.items()) file["model"][key] = value;
  std::vector<std::filesystem::path> files;
  return load_json_tokenizer(file.dump(), "/nowhere/tokenizer.json", files);
}

int64_t lost_bytes(const Tokenizer& tokenizer, std::string_view text) {
  int64_t lost = 0;
  (void)tokenizer.encode(text, SpecialText::plain, &lost);
  return lost;
}

TEST(LostBytes, OfJsonTokenizers) {
  for (const json& unknown : {json(nullptr), json("<unk>")}) {
    for (const bool fuses : {false, true}) {
      const auto tokenizer = loaded("marks", {{"byte_fallback", false}, {"unk_token", unknown}, {"fuse_unk", fuses}});
      EXPECT_EQ(lost_bytes(*tokenizer, "the cat"), 0);
      EXPECT_EQ(lost_bytes(*tokenizer, "the \u4F60\u597D cat\U0001F680"), 10);
    }
  }
  EXPECT_EQ(lost_bytes(*loaded("marks", json::object()), "the \u4F60\u597D cat"), 0);  // falls back to bytes
  EXPECT_EQ(lost_bytes(*loaded("bytes", json::object()), "the \u4F60\u597D cat"), 0);
}

TEST(LostBytes, AddUpOverTextsThatTheCacheKnows) {
  const auto tokenizer = loaded("marks", {{"byte_fallback", false}});
  const auto encoder = tokenizer->make_encoder();
  std::vector<int32_t> ids;
  for (int i = 1; i <= 3000; ++i) {
    encoder->encode("the \u4F60", ids);
    ASSERT_EQ(encoder->lost_bytes(), 3 * i);
  }
  int64_t lost = 1;
  (void)encode_prompt(*tokenizer, "\u4F60", PromptBos::off, SpecialText::parse, &lost);
  EXPECT_EQ(lost, 4);
}

TEST(LostBytes, OfSentencepieceModels) {
  testing::Scratch folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on a mat and ran to see the big red sun\n";
  testing::put_file(folder.file("text"), text);
  const std::string plain = " --normalization_rule_name=identity --remove_extra_whitespaces=false";
  for (const std::string& arguments :
       {"--model_type=bpe" + plain, std::string("--model_type=bpe"), std::string("--model_type=unigram")}) {
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--minloglevel=5 --input=" + folder.file("text") + " --model_prefix=" + folder.file("m") +
        " --hard_vocab_limit=false --vocab_size=60 " + arguments);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto tokenizer = make_sentencepiece_tokenizer(testing::get_file(folder.file("m.model")), "model");
    EXPECT_EQ(lost_bytes(*tokenizer, "the cat sat"), 0) << arguments;
    EXPECT_EQ(lost_bytes(*tokenizer, "the \u4F60\u597D cat \u4F60"), 9) << arguments;
    const auto encoder = tokenizer->make_encoder();
    std::vector<int32_t> ids;
    for (int i = 1; i <= 3000; ++i) encoder->encode(" the \u4F60 sat", ids);
    EXPECT_EQ(encoder->lost_bytes(), 9000) << arguments;
  }
}

}  // namespace
}  // namespace keel
