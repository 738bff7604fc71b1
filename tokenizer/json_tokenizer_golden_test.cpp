#include "keel/tokenizer/byte_alphabet.h"
#include "keel/tokenizer/golden_support.h"
#include "keel/tokenizer/tokenizer.h"

// Token ids of independent encoders (golden/tokens, data/tokenizers/expected, golden/models/trained.json).
namespace keel {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

std::string tokenizers() {
  return testing::test_data()->string() + "/data/tokenizers/";
}

// The texts without byte fallback that a decoder gives back as they were.
void expect_round_trip(const Tokenizer& tokenizer, const std::string& text, const Ids& ids, const std::string& id) {
  EXPECT_EQ(tokenizer.decode(ids), text) << id;
  Ids again = tokenizer.encode(tokenizer.decode(ids));
  EXPECT_EQ(again, ids) << id;
}

int compare(const Tokenizer& tokenizer, const std::string& golden, bool keeps_text) {
  const auto by_id = testing::golden_lines(golden);
  int compared = 0;
  for (const auto& [id, text] : testing::golden_documents()) {
    const auto found = by_id.find(id);
    if (found == by_id.end()) continue;
    const Ids plain = tokenizer.encode(text);
    testing::expect_golden(found->second, plain, id + " plain");
    const json& parsed = found->second.contains("special") ? found->second["special"] : found->second;
    testing::expect_golden(parsed, tokenizer.encode(text, SpecialText::parse), id + " special");
    if (keeps_text && find_invalid_utf8(text) < 0) expect_round_trip(tokenizer, text, plain, id);
    ++compared;
  }
  return compared;
}

// Lines of llama.cpp's own test: texts with a mark between, and their ids.
void expect_llama_cpp(const Tokenizer& tokenizer, const std::string& name) {
  const std::string base = tokenizers() + "expected/ggml-vocab-" + name + ".gguf";
  const std::string input = testing::get_file(base + ".inp"), mark = "\n__ggml_vocab_test__\n";
  std::istringstream wanted(testing::get_file(base + ".out"));
  int compared = 0;
  for (size_t begin = 0; begin < input.size(); ++compared) {
    const size_t end = std::min(input.find(mark, begin), input.size());
    std::string line;
    ASSERT_TRUE(std::getline(wanted, line));
    Ids ids;
    std::istringstream numbers(line);
    for (int32_t id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(tokenizer.encode(input.substr(begin, end - begin)), ids) << name << " text " << compared;
    begin = end + mark.size();
  }
  EXPECT_EQ(compared, 46);
}

TEST(JsonTokenizerGolden, Gpt2) {
  KEEL_NEEDS_TEST_DATA();
  const auto tokenizer = load_tokenizer(tokenizers() + "gpt2");
  EXPECT_EQ(tokenizer->path().filename(), "tokenizer.json");
  EXPECT_EQ(tokenizer->eos_id(), 50256);
  EXPECT_GE(compare(*tokenizer, "gpt2", true), 580);
  expect_llama_cpp(*tokenizer, "gpt-2");
  const auto from_vocab = load_tokenizer(tokenizers() + "gpt2/vocab.json");
  EXPECT_EQ(from_vocab->vocab_size(), 50257);
  EXPECT_EQ(from_vocab->bos_id(), 50256);
  EXPECT_EQ(from_vocab->files().size(), 2u);
  EXPECT_GE(compare(*from_vocab, "gpt2", true), 580);
}

TEST(JsonTokenizerGolden, GptNeox) {
  KEEL_NEEDS_TEST_DATA();
  const auto tokenizer = load_tokenizer(tokenizers() + "gpt-neox/20B_tokenizer.json");
  EXPECT_EQ(tokenizer->vocab_size(), 50277);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_GE(compare(*tokenizer, "gpt-neox", false), 580);
}

TEST(JsonTokenizerGolden, Dolma2) {
  KEEL_NEEDS_TEST_DATA();
  const auto tokenizer = load_tokenizer(tokenizers() + "dolma2");
  EXPECT_EQ(tokenizer->vocab_size(), 100278);
  EXPECT_EQ(tokenizer->eos_id(), 100257);
  EXPECT_GE(compare(*tokenizer, "dolma2", true), 580);
}

TEST(JsonTokenizerGolden, Qwen2) {
  KEEL_NEEDS_TEST_DATA();
  const auto tokenizer = load_tokenizer(tokenizers() + "qwen2");
  EXPECT_EQ(tokenizer->vocab_size(), 151646);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), 151645);
  EXPECT_EQ(tokenizer->pad_id(), 151643);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_GE(compare(*tokenizer, "qwen2", false), 580);
  expect_llama_cpp(*tokenizer, "qwen2");
}

TEST(JsonTokenizerGolden, Llama2) {
  KEEL_NEEDS_TEST_DATA();
  const auto tokenizer = load_tokenizer(tokenizers() + "llama2-hf");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer->adds_eos());
  EXPECT_GE(compare(*tokenizer, "llama2-hf", false), 580);
  expect_llama_cpp(*tokenizer, "llama-spm");
}

// A tokenizer.json from a rank file: each way to build a token of two others is a merge, in the order of ranks.
json json_of_ranks(const std::string& ranks_text, const json& config) {
  std::map<std::string, int32_t> ranks;
  std::istringstream lines(ranks_text);
  for (std::string code, rank; lines >> code >> rank;) ranks[testing::from_base64(code)] = std::stoi(rank);
  const auto spelt = [](std::string_view bytes) {
    std::string text;
    for (char byte : bytes) text += ByteAlphabet::get().character(static_cast<unsigned char>(byte));
    return text;
  };
  std::vector<std::tuple<int32_t, int32_t, int32_t, std::string, std::string>> merges;
  json vocab = json::object();
  for (const auto& [token, rank] : ranks) {
    vocab[spelt(token)] = rank;
    for (size_t i = 1; i < token.size(); ++i) {
      const auto left = ranks.find(token.substr(0, i)), right = ranks.find(token.substr(i));
      if (left == ranks.end() || right == ranks.end()) continue;
      merges.emplace_back(rank, left->second, right->second, spelt(left->first), spelt(right->first));
    }
  }
  std::sort(merges.begin(), merges.end());
  json pairs = json::array(), added = json::array();
  for (const auto& merge : merges) pairs.push_back({std::get<3>(merge), std::get<4>(merge)});
  for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
    added.push_back(token);
    added.back()["id"] = std::stoi(id);
  }
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"ignore_merges", true}, {"vocab", vocab}, {"merges", pairs}}}};
}

TEST(JsonTokenizerGolden, Llama3) {
  KEEL_NEEDS_TEST_DATA();
  testing::Scratch folder;
  const std::string config = testing::get_file(tokenizers() + "llama3.1/tokenizer_config.json");
  testing::put_file(folder / "tokenizer_config.json", config);
  testing::put_file(
      folder / "tokenizer.json",
      json_of_ranks(testing::get_file(tokenizers() + "llama3.1/tokenizer.model"), json::parse(config)).dump());
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  EXPECT_EQ(tokenizer->bos_id(), 128000);
  EXPECT_EQ(tokenizer->eos_id(), 128001);
  EXPECT_GE(compare(*tokenizer, "llama3.1", true), 580);
  expect_llama_cpp(*tokenizer, "llama-bpe");
}

TEST(JsonTokenizerGolden, TinyStories) {
  KEEL_NEEDS_TEST_DATA();
  const json golden = json::parse(testing::get_file(testing::test_data()->string() + "/golden/models/trained.json"));
  const json& wanted = golden["models"]["TinyStories-656K"];
  const auto tokenizer = load_tokenizer(testing::test_data()->string() + "/data/models/TinyStories-656K");
  const std::string text =
      testing::get_file(testing::test_data()->string() + "/data/" + golden["text"]["file"].get<std::string>())
          .substr(0, golden["text"]["bytes"][1]);
  const Ids ids = tokenizer->encode(text);
  const Ids first = wanted["first_ids"];
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
  EXPECT_EQ(ids.size(), wanted["ids_count"].get<size_t>());
  std::string numbers;  // the hash is that of the numbers with spaces between
  for (int32_t id : ids) numbers += (numbers.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(sha256_hex(numbers), wanted["ids_sha256"]);
  const std::string known = text.substr(0, 40000);  // without unknown characters
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(known)), known);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

}  // namespace
}  // namespace keel
