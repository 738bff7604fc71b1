#include <fmt/core.h>

#include "keel/tokenizer/tokenizer_json.h"
#include "keel/tokenizer/unicode.h"
#include "keel/tokenizer/vocabulary_reader.h"

namespace keel {
namespace {

constexpr size_t kMaxSteps = 16;

std::string_view type_of(const JsonNode& node) {
  return node.at("type").text();
}

[[noreturn]] void refuse_type(const JsonNode& node) {
  node.refuse("the type " + quoted_piece(type_of(node)));
}

// The steps of a Sequence, those of Sequences inside included; anything else is one step.
void append_steps(const JsonNode& node, std::string_view list, std::vector<JsonNode>& steps) {
  if (type_of(node) != "Sequence") {
    if (steps.size() == kMaxSteps) node.refuse(fmt::format("a chain of more than {} steps", kMaxSteps));
    steps.push_back(node);
    return;
  }
  node.allow_keys({"type", list});
  for (const JsonNode& step : node.at(list).items()) append_steps(step, list, steps);
}

std::vector<JsonNode> steps_of(const JsonNode& node, std::string_view list) {
  std::vector<JsonNode> steps;
  append_steps(node, list, steps);
  return steps;
}

// {"String": ".."} or {"Regex": ".."}, the latter only where `regex` is given.
std::string read_pattern(const JsonNode& node, bool* regex) {
  const JsonNode pattern = node.at("pattern");
  pattern.allow_keys({"String", "Regex"});
  if (const std::optional<JsonNode> text = pattern.find("String")) {
    if (regex != nullptr) *regex = false;
    if (text->text().empty()) text->refuse("an empty pattern");
    return std::string(text->text());
  }
  const JsonNode expression = pattern.at("Regex");
  if (regex == nullptr) expression.refuse("a regular expression");
  *regex = true;
  return std::string(expression.text());
}

NormalizerStep read_normalizer_step(const JsonNode& node) {
  using Kind = NormalizerStep::Kind;
  const std::string_view type = type_of(node);
  if (type == "Prepend") {
    node.allow_keys({"type", "prepend"});
    return {Kind::prepend, {}, std::string(node.at("prepend").text())};
  }
  if (type == "Replace") {
    node.allow_keys({"type", "pattern", "content"});
    return {Kind::replace, read_pattern(node, nullptr), std::string(node.at("content").text())};
  }
  node.allow_keys({"type"});
  if (type == "NFC") return {Kind::nfc, {}, {}};
  if (type == "NFD") return {Kind::nfd, {}, {}};
  if (type == "NFKC") return {Kind::nfkc, {}, {}};
  if (type == "NFKD") return {Kind::nfkd, {}, {}};
  refuse_type(node);
}

PreTokenizerStep::Behavior read_behavior(const JsonNode& node) {
  using Behavior = PreTokenizerStep::Behavior;
  const std::string_view name = node.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.refuse(quoted_piece(name));
}

// A regular expression that matches this text only.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#&/").find(c) != std::string_view::npos) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

PreTokenizerStep::Prepend read_prepend(const JsonNode& node) {
  using Prepend = PreTokenizerStep::Prepend;
  const std::optional<JsonNode> scheme = node.find("prepend_scheme");
  const bool prefix = node.flag("add_prefix_space", true);
  if (!scheme) return prefix ? Prepend::always : Prepend::never;
  const std::string_view name = scheme->text();
  if (name == "always") return Prepend::always;
  if (name == "never") return Prepend::never;
  if (name == "first") return Prepend::first;
  scheme->refuse(quoted_piece(name));
}

std::string read_replacement(const JsonNode& node) {
  node.allow_keys({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  const JsonNode replacement = node.at("replacement");
  if (replacement.text().empty() || first_character(replacement.text()) != replacement.text()) {
    replacement.fail("is not one character");
  }
  return std::string(replacement.text());
}

PreTokenizerStep read_pre_tokenizer_step(const JsonNode& node) {
  using Kind = PreTokenizerStep::Kind;
  const std::string_view type = type_of(node);
  PreTokenizerStep step{};
  if (type == "ByteLevel") {
    node.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = Kind::byte_level;
    step.add_prefix_space = node.flag("add_prefix_space", true);
    step.split = node.flag("use_regex", true);
  } else if (type == "Split") {
    node.allow_keys({"type", "pattern", "behavior", "invert"});
    bool regex = false;
    step.kind = Kind::split;
    step.pattern = read_pattern(node, &regex);
    if (!regex) step.pattern = escaped(step.pattern);
    step.behavior = read_behavior(node.at("behavior"));
    step.inverted = node.flag("invert", false);
  } else if (type == "Digits") {
    node.allow_keys({"type", "individual_digits"});
    step.kind = Kind::split;
    step.pattern = node.flag("individual_digits", false) ? "\\p{N}" : "\\p{N}+";
    step.behavior = PreTokenizerStep::Behavior::isolated;
  } else if (type == "Metaspace") {
    step.kind = Kind::metaspace;
    step.replacement = read_replacement(node);
    step.prepend = read_prepend(node);
    step.split = node.flag("split", true);
  } else {
    refuse_type(node);
  }
  return step;
}

void read_decoder_step(const JsonNode& node, bool fused, DecoderRules& rules) {
  const std::string_view type = type_of(node);
  if (!rules.metaspace.empty() && type != "Fuse") node.refuse("a step after Metaspace");
  if (type == "Replace") {
    node.allow_keys({"type", "pattern", "content"});
    if (rules.byte_fallback || fused) node.refuse("Replace after ByteFallback or Fuse");
    std::string pattern = read_pattern(node, nullptr);
    rules.replacements.emplace_back(std::move(pattern), std::string(node.at("content").text()));
  } else if (type == "ByteFallback") {
    if (fused) node.refuse("ByteFallback after Fuse");
    rules.byte_fallback = true;
  } else if (type == "Strip") {
    node.allow_keys({"type", "content", "start", "stop"});
    if (!fused || rules.strip_most > 0) node.refuse("Strip without Fuse before it, or twice");
    rules.strip = node.at("content").text();
    rules.strip_most = node.integer_or("start", 0);
    if (rules.strip.empty() || rules.strip_most < 0) node.fail("is no sensible Strip");
    if (node.integer_or("stop", 0) != 0) node.at("stop").refuse("a value other than 0");
  } else if (type == "Metaspace") {
    if (fused) node.refuse("Metaspace after Fuse");
    rules.metaspace = read_replacement(node);
    rules.metaspace_prefix = read_prepend(node) != PreTokenizerStep::Prepend::never;
  } else {
    refuse_type(node);
  }
}

// What stands on one side of the text in a template: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}].
void read_template(const JsonNode& node, TokenizerSpec& spec) {
  node.allow_keys({"type", "single", "pair", "special_tokens"});
  bool after_text = false;
  for (const JsonNode& item : node.at("single").items()) {
    item.allow_keys({"SpecialToken", "Sequence"});
    if (item.find("Sequence")) {
      if (after_text) item.refuse("the text twice");
      after_text = true;
      continue;
    }
    const JsonNode name = item.at("SpecialToken").at("id");
    const JsonNode token = node.at("special_tokens").at(name.text());
    for (const JsonNode& id : token.at("ids").items()) {
      const int64_t value = id.integer();
      if (value < 0 || value > INT32_MAX) id.fail("is no token id");
      (after_text ? spec.suffix : spec.prefix).push_back(static_cast<int32_t>(value));
    }
  }
  if (!after_text) node.fail("has no place for the text");
}

int32_t read_wrapping_token(const JsonNode& node) {
  const std::vector<JsonNode> pair = node.items();
  if (pair.size() != 2) node.fail("is not a pair of token and id");
  const int64_t id = pair[1].integer();
  if (id < 0 || id > INT32_MAX) pair[1].fail("is no token id");
  return static_cast<int32_t>(id);
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonNode& node) {
  std::vector<NormalizerStep> steps;
  for (const JsonNode& step : steps_of(node, "normalizers")) steps.push_back(read_normalizer_step(step));
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonNode& node) {
  std::vector<PreTokenizerStep> steps;
  for (const JsonNode& step : steps_of(node, "pretokenizers")) {
    if (!steps.empty() && steps.back().kind == PreTokenizerStep::Kind::byte_level)
      step.refuse("a step after ByteLevel");
    steps.push_back(read_pre_tokenizer_step(step));
  }
  return steps;
}

DecoderRules read_decoder(const JsonNode& node) {
  DecoderRules rules;
  const std::vector<JsonNode> steps = steps_of(node, "decoders");
  bool fused = false;
  for (const JsonNode& step : steps) {
    if (type_of(step) == "ByteLevel") {
      step.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (steps.size() > 1) step.refuse("ByteLevel with other steps");
      rules.byte_level = true;
    } else if (type_of(step) == "Fuse") {
      step.allow_keys({"type"});
      fused = true;
    } else {
      read_decoder_step(step, fused, rules);
    }
  }
  return rules;
}

void read_post_processor(const JsonNode& node, TokenizerSpec& spec) {
  spec.has_post_processor = true;
  for (const JsonNode& step : steps_of(node, "processors")) {
    const std::string_view type = type_of(step);
    if (type == "ByteLevel") continue;  // offsets only
    if (!spec.prefix.empty() || !spec.suffix.empty()) step.refuse("a second step that adds tokens");
    if (type == "TemplateProcessing") {
      read_template(step, spec);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      step.allow_keys({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      spec.prefix = {read_wrapping_token(step.at("cls"))};
      spec.suffix = {read_wrapping_token(step.at("sep"))};
    } else {
      refuse_type(step);
    }
  }
}

}  // namespace keel
