#include "keel/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/json.h"
#include "keel/tokenizer/vocabulary_reader.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = int64_t{64} << 20;

// The value of a key, nullptr if it is missing or null.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// Reads values of one file, with errors that name the key.
class ConfigReader {
 public:
  ConfigReader(const Json& root, std::string file) : root_(root), file_(std::move(file)) {
    if (!root.is_object()) throw Error(ErrorKind::format, "not a JSON object", file_);
  }

  // A token is its text, or an object with its text and flags.
  void name(const char* key, TokenizerConfig::Name& name) const {
    if (name.given || !root_.contains(key)) return;
    name.given = true;
    const Json* value = find(root_, key);
    if (value != nullptr && value->is_object()) value = find(*value, "content");
    if (value == nullptr && find(root_, key) != nullptr) fail(key, "has no content");
    if (value == nullptr) return;
    if (!value->is_string()) fail(key, "is not a string");
    name.content = value->get<std::string>();
  }

  bool flag(const char* key) const { return flag(root_, key, key, false); }

  std::optional<std::string> text(const char* key) const {
    const Json* value = find(root_, key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) fail(key, "is not a string");
    return value->get<std::string>();
  }

  // {"0": {"content": "<unk>", "special": true, ...}, ...}
  std::vector<AddedToken> added(const char* key) const {
    std::vector<AddedToken> tokens;
    const Json* list = find(root_, key);
    if (list == nullptr) return tokens;
    if (!list->is_object()) fail(key, "is not an object");
    for (const auto& [id, value] : list->items()) tokens.push_back(added_token(key, id, value));
    std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return tokens;
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& problem) const {
    throw Error(ErrorKind::format, key + " " + problem, file_);
  }

  bool flag(const Json& object, const char* key, const std::string& shown, bool absent) const {
    const Json* value = find(object, key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) fail(shown, "is neither true nor false");
    return value->get<bool>();
  }

  AddedToken added_token(const std::string& list, const std::string& id, const Json& value) const {
    AddedToken token;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token.id);
    if (error != std::errc() || end != id.data() + id.size() || token.id < 0)
      fail(list, "has " + quoted_piece(id) + ", which is no token id");
    const std::string shown = list + "." + id;
    const Json* content = value.is_object() ? find(value, "content") : nullptr;
    if (content == nullptr || !content->is_string()) fail(shown, "has no content");
    token.content = content->get<std::string>();
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes)
      fail(shown, "is not a token of 1 to 1024 bytes");
    token.special = flag(value, "special", shown, false);
    token.single_word = flag(value, "single_word", shown, false);
    token.lstrip = flag(value, "lstrip", shown, false);
    token.rstrip = flag(value, "rstrip", shown, false);
    token.normalized = flag(value, "normalized", shown, !token.special);
    return token;
  }

  const Json& root_;
  std::string file_;
};

void read_names(const ConfigReader& reader, TokenizerConfig& config) {
  reader.name("bos_token", config.bos);
  reader.name("eos_token", config.eos);
  reader.name("unk_token", config.unk);
  reader.name("pad_token", config.pad);
}

void read_config(const ConfigReader& reader, const Json& root, TokenizerConfig& config) {
  read_names(reader, config);
  config.tokenizer_class = reader.text("tokenizer_class");
  config.says_what_to_add = root.contains("add_bos_token") || root.contains("add_eos_token");
  config.add_bos = reader.flag("add_bos_token");
  config.add_eos = reader.flag("add_eos_token");
  config.add_prefix_space = reader.flag("add_prefix_space");
  config.added = reader.added("added_tokens_decoder");
}

std::optional<int32_t> find_piece(const TokenizerSpec& spec, const std::string& piece) {
  if (const std::optional<int32_t> id = spec.find_added(piece)) return id;
  const auto found = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  if (found == spec.pieces.end()) return std::nullopt;
  return static_cast<int32_t>(found - spec.pieces.begin());
}

std::optional<int32_t> find_usual(const TokenizerSpec& spec, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const AddedToken& token : spec.added) {
      if (token.special && token.content == name) return token.id;
    }
  }
  return std::nullopt;
}

std::optional<int32_t> find_named(const TokenizerSpec& spec, const TokenizerConfig::Name& name) {
  return name.content ? find_piece(spec, *name.content) : std::nullopt;
}

std::optional<int32_t> find_edge(const TokenizerConfig::Name& name, const char* key, const std::string& file,
                                 const TokenizerSpec& spec, const std::vector<int32_t>& template_ids,
                                 std::initializer_list<const char*> usual) {
  if (!name.given) return template_ids.size() == 1 ? template_ids[0] : find_usual(spec, usual);
  const std::optional<int32_t> id = find_named(spec, name);
  if (name.content && !id) {
    throw Error(ErrorKind::format, std::string(key) + " " + quoted_piece(*name.content) + " is not in the vocabulary",
                file);
  }
  return id;
}

// Whether the post-processor puts exactly this token there.
bool adds(const std::vector<int32_t>& template_ids, const std::optional<int32_t>& id, const char* what,
          const std::string& file) {
  if (template_ids.empty()) return false;
  if (template_ids.size() > 1 || template_ids[0] != id) {
    throw Error(ErrorKind::usage,
                std::string("post_processor: adding other tokens than ") + what + " is not read by this version", file);
  }
  return true;
}

}  // namespace

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path)) continue;
    const Json root = parse_json(read_regular_file(path, kMaxConfigBytes), path.string(), ErrorKind::format);
    const ConfigReader reader(root, path.string());
    if (path.filename() == "tokenizer_config.json") {
      read_config(reader, root, config);
    } else {
      read_names(reader, config);
    }
    config.files.push_back(path);
  }
  return config;
}

SpecialIds find_special_ids(const TokenizerConfig& config, const std::string& name, TokenizerSpec& spec) {
  SpecialIds ids;
  ids.bos = find_edge(config.bos, "bos_token", name, spec, spec.prefix, {"<s>", "<|begin_of_text|>", "<bos>"});
  ids.eos = find_edge(config.eos, "eos_token", name, spec, spec.suffix,
                      {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"});
  ids.unk = config.unk.given ? find_named(spec, config.unk) : spec.unknown;
  ids.pad =
      config.pad.given ? find_named(spec, config.pad) : find_usual(spec, {"<pad>", "<|padding|>", "<|pad|>", "[PAD]"});
  if (config.says_what_to_add) {
    ids.adds_bos = config.add_bos && ids.bos;
    ids.adds_eos = config.add_eos && ids.eos;
  } else {
    ids.adds_bos = adds(spec.prefix, ids.bos, "BOS before the text", name);
    ids.adds_eos = adds(spec.suffix, ids.eos, "EOS behind the text", name);
  }
  for (AddedToken& token : spec.added) {
    token.special =
        token.special || token.id == ids.bos || token.id == ids.eos || token.id == ids.unk || token.id == ids.pad;
  }
  return ids;
}

}  // namespace keel
