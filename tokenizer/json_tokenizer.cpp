#include "keel/tokenizer/json_tokenizer.h"

#include <algorithm>

#include "keel/base/files.h"
#include "keel/base/utf8.h"
#include "keel/tokenizer/bpe_tokenizer.h"
#include "keel/tokenizer/tokenizer_config.h"
#include "keel/tokenizer/tokenizer_json.h"
#include "keel/tokenizer/utf8_repair.h"
#include "keel/tokenizer/vocabulary_reader.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxMergesBytes = int64_t{256} << 20;
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Family { gpt2, qwen2 };

Family family_of(const TokenizerConfig& config, const VocabularyReader& vocabulary, const std::string& name) {
  if (!config.tokenizer_class) {
    if (vocabulary.find(kEndOfText)) return Family::gpt2;
    throw Error(ErrorKind::usage, "a vocabulary with merges, but nothing says how text is split", name,
                "a tokenizer.json, or a tokenizer_config.json with a tokenizer_class, is wanted beside it");
  }
  const std::string& type = *config.tokenizer_class;
  if (type == "GPT2Tokenizer" || type == "GPT2TokenizerFast") return Family::gpt2;
  if (type == "Qwen2Tokenizer" || type == "Qwen2TokenizerFast") return Family::qwen2;
  throw Error(ErrorKind::usage,
              "a vocab.json of tokenizer_class " + quoted_piece(type) + " is not read by this version", name,
              "a tokenizer.json is wanted");
}

void read_merges(const fs::path& path, const VocabularyReader& vocabulary, TokenizerSpec& spec) {
  const std::string text = read_regular_file(path, kMaxMergesBytes);
  if (find_invalid_utf8(text) >= 0) throw Error(ErrorKind::format, "not valid UTF-8", path.string());
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::string where = path.filename().string() + ":" + std::to_string(number);
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw Error(ErrorKind::format, quoted_piece(line) + " is not two pieces with a space between", where);
    vocabulary.add_merge(line.substr(0, space), line.substr(space + 1), where, spec);
  }
}

// What the class takes where the config says nothing.
void fill_in_defaults(Family family, TokenizerConfig& config) {
  const auto fill_in = [](TokenizerConfig::Name& name) {
    if (!name.given) name = {true, kEndOfText};
  };
  fill_in(config.eos);
  fill_in(config.unk);
  if (family == Family::gpt2) fill_in(config.bos);
  if (family == Family::qwen2) fill_in(config.pad);
}

// Added tokens of the config, and those with a special meaning.
std::vector<AddedToken> added_tokens(const TokenizerConfig& config, const VocabularyReader& vocabulary) {
  std::vector<AddedToken> added = config.added;
  for (const TokenizerConfig::Name* name : {&config.bos, &config.eos, &config.unk, &config.pad}) {
    if (!name->content) continue;
    const bool known = std::any_of(added.begin(), added.end(),
                                   [&](const AddedToken& token) { return token.content == *name->content; });
    const std::optional<int32_t> id = vocabulary.find(*name->content);
    if (!known && id) added.push_back({.content = *name->content, .id = *id, .special = true});
  }
  return added;
}

TokenizerSpec read_vocab_and_merges(std::string_view text, const fs::path& file, TokenizerConfig& config) {
  using Kind = PreTokenizerStep::Kind;
  const JsonFile json(text, file.string());
  const VocabularyReader vocabulary(json.root());
  const Family family = family_of(config, vocabulary, file.string());
  fill_in_defaults(family, config);
  TokenizerSpec spec;
  vocabulary.place(added_tokens(config, vocabulary), spec);
  read_merges(file.parent_path() / "merges.txt", vocabulary, spec);
  PreTokenizerStep bytes{.kind = Kind::byte_level};
  bytes.add_prefix_space = config.add_prefix_space;
  if (family == Family::qwen2) {
    spec.normalizer = {{NormalizerStep::Kind::nfc, {}, {}}};
    spec.pre_tokenizer.push_back({.kind = Kind::split, .pattern = kQwen2Pattern});
    bytes.split = false;
  }
  spec.pre_tokenizer.push_back(bytes);
  spec.decoder.byte_level = true;
  return spec;
}

}  // namespace

std::unique_ptr<Tokenizer> load_json_tokenizer(std::string_view text, const fs::path& file,
                                               std::vector<fs::path>& files) {
  TokenizerConfig config = read_tokenizer_config(file.parent_path());
  const bool is_vocabulary = file.filename() == "vocab.json";
  TokenizerSpec spec = is_vocabulary ? read_vocab_and_merges(text, file, config)
                                     : parse_tokenizer_json(text, file.string(), config.added);
  if (is_vocabulary) files.push_back(file.parent_path() / "merges.txt");
  files.insert(files.end(), config.files.begin(), config.files.end());
  const SpecialIds ids = find_special_ids(config, file.string(), spec);
  return make_bpe_tokenizer(std::move(spec), ids, file.string());
}

}  // namespace keel
