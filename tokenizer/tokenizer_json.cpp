#include "keel/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "keel/tokenizer/vocabulary_reader.h"

namespace keel {
namespace {

void add_merge(const VocabularyReader& vocabulary, const JsonNode& merges, simdjson::dom::element rule,
               TokenizerSpec& spec) {
  const auto where = [&] { return merges.path() + "[" + std::to_string(spec.merges.size()) + "]"; };
  std::string_view line;
  if (rule.get_string().get(line) == simdjson::SUCCESS) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      merges.fail("has " + quoted_piece(line) + " at " + where() + ", which is not two pieces with a space between");
    return vocabulary.add_merge(line.substr(0, space), line.substr(space + 1), where(), spec);
  }
  simdjson::dom::array pair;
  std::array<std::string_view, 2> sides;
  bool good = rule.get_array().get(pair) == simdjson::SUCCESS && pair.size() == 2;
  size_t side = 0;
  if (good) {
    for (const simdjson::dom::element piece : pair) {
      good = good && piece.get_string().get(sides[side++]) == simdjson::SUCCESS;
    }
  }
  if (!good) merges.fail("has at " + where() + " neither a string nor a pair of strings");
  vocabulary.add_merge(sides[0], sides[1], where(), spec);
}

void require_empty_text(const JsonNode& model, std::string_view key) {
  const std::optional<JsonNode> value = model.find(key);
  if (value && !value->text().empty()) value->refuse("a value");
}

void check_model_kind(const JsonNode& model) {
  if (const std::optional<JsonNode> type = model.find("type")) {
    if (type->text() != "BPE") type->refuse(quoted_piece(type->text()));
  } else if (!model.find("merges")) {
    model.refuse("a model without merges");
  }
  model.allow_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                    "byte_fallback", "ignore_merges", "vocab", "merges"});
  require_empty_text(model, "continuing_subword_prefix");
  require_empty_text(model, "end_of_word_suffix");
  if (const std::optional<JsonNode> dropout = model.find("dropout")) {
    double value = 0;
    if (dropout->element().get_double().get(value) != simdjson::SUCCESS) dropout->fail("is not a number");
    if (value != 0) dropout->refuse("merging at random");
  }
}

void read_model(const JsonNode& model, const std::vector<AddedToken>& added, TokenizerSpec& spec) {
  check_model_kind(model);
  const VocabularyReader vocabulary(model.at("vocab"));
  vocabulary.place(added, spec);
  spec.fuse_unknown = model.flag("fuse_unk", false);
  spec.byte_fallback = model.flag("byte_fallback", false);
  spec.ignore_merges = model.flag("ignore_merges", false);
  if (const std::optional<JsonNode> unknown = model.find("unk_token")) {
    spec.unknown = vocabulary.find(unknown->text());
    if (!spec.unknown) spec.unknown = spec.find_added(std::string(unknown->text()));
    if (!spec.unknown) unknown->fail(quoted_piece(unknown->text()) + " is not in the vocabulary");
  }
  const JsonNode merges = model.at("merges");
  for (const simdjson::dom::element rule : merges.array()) add_merge(vocabulary, merges, rule, spec);
}

std::vector<AddedToken> read_added_tokens(const JsonNode& root, const std::vector<AddedToken>& more) {
  std::vector<AddedToken> added;
  if (const std::optional<JsonNode> list = root.find("added_tokens")) {
    for (const JsonNode& node : list->items()) {
      added.push_back(read_added_token(node));
      if (node.integer_or("id", -1) < 0) node.fail("has no usable \"id\"");
    }
  }
  std::vector<std::string_view> known;
  for (const AddedToken& token : added) known.push_back(token.content);
  std::sort(known.begin(), known.end());
  for (const AddedToken& token : more) {
    if (!std::binary_search(known.begin(), known.end(), token.content)) added.push_back(token);
  }
  return added;
}

void check_post_processor_ids(const JsonNode& node, const TokenizerSpec& spec) {
  for (const std::vector<int32_t>* ids : {&spec.prefix, &spec.suffix}) {
    for (int32_t id : *ids) {
      if (id < 0 || id >= static_cast<int64_t>(spec.pieces.size()))
        node.fail("names the id " + std::to_string(id) + ", which is outside the vocabulary");
    }
  }
}

}  // namespace

AddedToken read_added_token(const JsonNode& node) {
  node.allow_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
  AddedToken token;
  token.content = node.at("content").text();
  if (token.content.empty()) node.at("content").fail("is empty");
  if (token.content.size() > kMaxAddedTokenBytes) node.at("content").refuse("a token of more than 1024 bytes");
  token.id = static_cast<int32_t>(std::clamp<int64_t>(node.integer_or("id", -1), -1, INT32_MAX));
  token.special = node.flag("special", false);
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name,
                                   const std::vector<AddedToken>& more_added) {
  const JsonFile file(text, name);
  const JsonNode root = file.root();
  const JsonNode model = root.at("model");  // first: what lacks it is no such file at all
  root.allow_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"});
  const std::optional<JsonNode> version = root.find("version");
  if (version && version->text() != "1.0") version->refuse(quoted_piece(version->text()));
  TokenizerSpec spec;
  read_model(model, read_added_tokens(root, more_added), spec);
  if (const auto node = root.find("normalizer")) spec.normalizer = read_normalizer(*node);
  if (const auto node = root.find("pre_tokenizer")) spec.pre_tokenizer = read_pre_tokenizer(*node);
  const std::optional<JsonNode> decoder = root.find("decoder");
  if (!decoder) root.refuse("a tokenizer without decoder");
  spec.decoder = read_decoder(*decoder);
  if (const auto node = root.find("post_processor")) {
    read_post_processor(*node, spec);
    check_post_processor_ids(*node, spec);
  }
  return spec;
}

}  // namespace keel
