#include "keel/convert/companions.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "keel/base/files.h"
#include "keel/base/json.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCompanion = int64_t{256} << 20;

/// Files that travel with a model, byte for byte.
constexpr std::array kCompanions{
    "generation_config.json",  "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "vocab.json",     "merges.txt",      "added_tokens.json",
    "chat_template.jinja"};

bool has(const std::vector<Companion>& files, std::string_view name) {
  return std::any_of(files.begin(), files.end(), [&](const Companion& file) { return file.name == name; });
}

Companion json_file(const std::string& name, const Json& json) {
  return {name, json_text(json, 2) + "\n"};
}

Json generation_config(const SpecialTokens& special) {
  Json json{{"_from_model_config", true}};
  if (special.bos_id) json["bos_token_id"] = *special.bos_id;
  if (special.eos_id) json["eos_token_id"] = *special.eos_id;
  json["transformers_version"] = kTransformersVersion;
  return json;
}

/// A tokenizer.json is taken as it is by the class named here, with rules of their own by those named after families.
/// Which class converts a sentencepiece model rightly depends on the version of transformers: it chooses itself.
Json tokenizer_config(const SpecialTokens& special, int64_t max_positions, bool is_json) {
  Json json{{"add_bos_token", special.adds_bos}, {"add_eos_token", special.adds_eos}};
  if (is_json) json["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (!special.bos.empty()) json["bos_token"] = special.bos;
  if (!special.eos.empty()) json["eos_token"] = special.eos;
  if (!special.unk.empty()) json["unk_token"] = special.unk;
  json["clean_up_tokenization_spaces"] = false;
  if (max_positions > 0) json["model_max_length"] = max_positions;
  return json;
}

}  // namespace

std::vector<Companion> companions_of(const ModelFolder& source) {
  std::vector<Companion> files;
  for (const char* name : kCompanions) {
    const fs::path path = fs::path(source.path) / name;
    std::error_code code;
    if (fs::is_regular_file(path, code)) files.push_back({name, read_regular_file(path, kMaxCompanion)});
  }
  return files;
}

std::vector<Companion> missing_companions(const std::vector<Companion>& present, const SpecialTokens& special,
                                          int64_t max_positions) {
  std::vector<Companion> files;
  if (!has(present, "generation_config.json") && (special.bos_id || special.eos_id)) {
    files.push_back(json_file("generation_config.json", generation_config(special)));
  }
  const bool is_json = has(present, "tokenizer.json");
  if ((is_json || has(present, "tokenizer.model")) && !has(present, "tokenizer_config.json")) {
    files.push_back(json_file("tokenizer_config.json", tokenizer_config(special, max_positions, is_json)));
  }
  return files;
}

}  // namespace keel
