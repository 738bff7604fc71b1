#include "keel/tokenizer/tokenizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "keel/base/atomic_file.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/tokenizer/json_tokenizer.h"
#include "keel/tokenizer/sentencepiece_tokenizer.h"
#include "keel/tokenizer/tokenizer_config.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// tiktoken's rank files: lines of base64, a space, a number.
bool is_rank_file(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 >= line.size()) return false;
  const auto is_base64 = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=';
  };
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '\r'; };
  const std::string_view number = line.substr(space + 1);
  return std::all_of(line.begin(), line.begin() + space, is_base64) &&
         std::all_of(number.begin(), number.end(), is_digit);
}

// transformers' class for Llama's sentencepiece models puts BOS first unless add_bos_token says otherwise.
bool is_llama_class(const TokenizerConfig& config) {
  const std::string name = config.tokenizer_class.value_or("");
  return name == "LlamaTokenizer" || name == "LlamaTokenizerFast" || name == "CodeLlamaTokenizer";
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view bytes, const fs::path& file, std::vector<fs::path>& files) {
  const std::string name = file.string();
  const size_t first = bytes.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string_view::npos) throw Error(ErrorKind::format, "the tokenizer file is empty", name);
  if (bytes[first] == '{') return load_json_tokenizer(bytes, file, files);
  if (is_rank_file(bytes)) {
    throw Error(ErrorKind::usage, "tiktoken rank files are not read by this version", name,
                "give a tokenizer.json or a sentencepiece .model file");
  }
  const TokenizerConfig config = read_tokenizer_config(file.parent_path());
  files.insert(files.end(), config.files.begin(), config.files.end());
  const bool adds_bos = config.says_what_to_add ? config.add_bos : is_llama_class(config);
  return make_sentencepiece_tokenizer(bytes, name, adds_bos, config.add_eos);
}

}  // namespace

TokenEncoder::~TokenEncoder() = default;
TokenDecoder::~TokenDecoder() = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialText special, int64_t* lost_bytes) const {
  std::vector<int32_t> ids;
  const std::unique_ptr<TokenEncoder> encoder = make_encoder();
  encoder->encode(text, ids, special);
  if (lost_bytes != nullptr) *lost_bytes += encoder->lost_bytes();
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  const std::unique_ptr<TokenDecoder> decoder = make_decoder();
  for (int32_t id : ids) decoder->append(id, text);
  decoder->finish(text);
  return text;
}

fs::path find_tokenizer_file(const fs::path& path) {
  if (!fs::is_directory(path)) {
    require_file(path);
    return path;
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
    if (fs::exists(path / name)) return path / name;
  }
  std::vector<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".model") models.push_back(entry.path());
  }
  if (models.size() == 1) return models.front();
  if (models.size() > 1)
    throw Error(ErrorKind::usage, "several tokenizer files", path.string(), "name the one you mean");
  if (fs::exists(path / "vocab.json") && fs::exists(path / "merges.txt")) return path / "vocab.json";
  throw Error(ErrorKind::io, "no tokenizer file", path.string(),
              "a tokenizer.json, a .model file, or vocab.json and merges.txt are looked for");
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& path) {
  const fs::path file = find_tokenizer_file(path);
  (void)size_of_file(file);  // a pipe or device is no tokenizer
  const std::string bytes = read_regular_file(file, kMaxTokenizerBytes);
  std::vector<fs::path> files{file};
  std::shared_ptr<Tokenizer> tokenizer = make_tokenizer(bytes, file, files);
  tokenizer->path_ = file;
  tokenizer->files_ = std::move(files);
  tokenizer->sha256_ = sha256_hex(bytes);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> load_model_tokenizer(const fs::path& path, int64_t vocab_size,
                                                      const std::string& model) {
  if (path.empty()) {
    throw Error(ErrorKind::format, "the model has no tokenizer", model, "put its tokenizer file beside it");
  }
  auto tokenizer = load_tokenizer(path);
  if (tokenizer->vocab_size() <= vocab_size) return tokenizer;
  throw Error(ErrorKind::format,
              fmt::format("the tokenizer has {} ids, the model's vocabulary {}", tokenizer->vocab_size(), vocab_size),
              path.string());
}

std::string copy_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  const std::string name = tokenizer.path().filename().string();
  const bool is_sentencepiece = tokenizer.type().starts_with("sentencepiece");
  const std::string main = is_sentencepiece ? "tokenizer.model" : name == "vocab.json" ? name : "tokenizer.json";
  for (const fs::path& file : tokenizer.files()) {
    const std::string copy = file == tokenizer.path() ? main : file.filename().string();
    write_file_atomically(folder / copy, read_file(file));
  }
  return main;
}

std::vector<std::string> tokenizer_file_names(const std::string& main) {
  std::vector<std::string> names{main};
  if (main == "vocab.json") names.push_back("merges.txt");
  names.insert(names.end(), {"tokenizer_config.json", "special_tokens_map.json"});
  return names;
}

}  // namespace keel
