#include "keel/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "keel/tokenizer/large_part.h"
#include "keel/tokenizer/unicode.h"

namespace keel {
namespace {

using Kind = PreTokenizerStep::Kind;
using Behavior = PreTokenizerStep::Behavior;
using Prepend = PreTokenizerStep::Prepend;

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  size_t begin, end;
  bool is_match;
};

// Joins matches with what stands beside them.
std::vector<Part> merged(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> result;
  bool previous = false;
  const auto add = [&](const Part& part, bool joins) {
    if (joins && !result.empty()) {
      result.back().begin = std::min(result.back().begin, part.begin);
      result.back().end = std::max(result.back().end, part.end);
    } else {
      result.push_back(part);
    }
    previous = part.is_match;
  };
  if (behavior == Behavior::merged_with_next) {
    for (size_t i = parts.size(); i-- > 0;) add(parts[i], parts[i].is_match && !previous);
    std::reverse(result.begin(), result.end());
  } else if (behavior == Behavior::merged_with_previous) {
    for (const Part& part : parts) add(part, part.is_match && !previous);
  } else {
    for (const Part& part : parts) add(part, part.is_match == previous);
  }
  return result;
}

}  // namespace

WordSink::~WordSink() = default;

struct PreTokenizer::Step {
  PreTokenizerStep rule;
  std::optional<SplitPattern> pattern;
};

struct PreTokenizer::Scratch::Step {
  std::optional<SplitPattern::Matcher> matcher;
  std::string text;
};

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, const std::string& name) {
  for (const PreTokenizerStep& rule : steps) {
    Step step{rule, {}};
    if (rule.kind == Kind::split) step.pattern.emplace(rule.pattern, name);
    if (rule.kind == Kind::byte_level && rule.split) step.pattern.emplace(kGpt2Pattern, name);
    steps_.push_back(std::move(step));
  }
}

PreTokenizer::~PreTokenizer() = default;

PreTokenizer::Scratch::Scratch(const PreTokenizer& pre_tokenizer) {
  for (const PreTokenizer::Step& step : pre_tokenizer.steps_) {
    Step scratch;
    if (step.pattern) scratch.matcher.emplace(*step.pattern);
    steps_.push_back(std::move(scratch));
  }
}

PreTokenizer::Scratch::~Scratch() = default;

void PreTokenizer::run(size_t index, std::string_view text, bool first, Scratch& scratch, WordSink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) return sink.word(text);
  const PreTokenizerStep& rule = steps_[index].rule;
  if (rule.kind == Kind::metaspace) return run_metaspace(index, text, first, scratch, sink);
  if (rule.kind == Kind::byte_level && rule.add_prefix_space && text[0] != ' ') {
    std::string& prefixed = scratch.steps_[index].text;
    prefixed = " ";
    prefixed += text;
    text = prefixed;
  }
  if (!steps_[index].pattern) return run(index + 1, text, first, scratch, sink);
  if (rule.behavior == Behavior::isolated || rule.behavior == Behavior::removed) {
    run_pattern(index, text, first, scratch, sink);
  } else {
    run_merging(index, text, first, scratch, sink);
  }
}

template <class Give>
void PreTokenizer::for_each_match(size_t index, std::string_view text, Scratch& scratch, const Give& give) const {
  SplitPattern::Matcher& matcher = *scratch.steps_[index].matcher;
  size_t done = 0;
  bool any = false;
  for (size_t at = 0; at <= text.size();) {
    const std::optional<SplitPattern::Match> match = matcher.find(text, at);
    if (!match) break;
    const auto [begin, end] = *match;
    at = begin < end || end >= text.size() ? end + (begin == end) : end + character_bytes(text[end]);
    if (begin == end && any && begin == done) continue;  // an empty match right behind the last one
    if (done < begin) give(done, begin, false);
    give(begin, end, true);
    done = end;
    any = true;
  }
  if (done < text.size()) give(done, text.size(), false);
}

void PreTokenizer::run_pattern(size_t index, std::string_view text, bool first, Scratch& scratch,
                               WordSink& sink) const {
  const PreTokenizerStep& rule = steps_[index].rule;
  const bool keeps_matches = rule.behavior == Behavior::isolated || rule.inverted;
  const bool keeps_others = rule.behavior == Behavior::isolated || !rule.inverted;
  const auto give = [&](size_t begin, size_t end) {
    if (begin < end) run(index + 1, text.substr(begin, end - begin), first && begin == 0, scratch, sink);
  };
  for_each_match(index, text, scratch, [&](size_t begin, size_t end, bool is_match) {
    if (is_match ? keeps_matches : keeps_others) give(begin, end);
  });
}

void PreTokenizer::run_merging(size_t index, std::string_view text, bool first, Scratch& scratch,
                               WordSink& sink) const {
  const PreTokenizerStep& rule = steps_[index].rule;
  std::vector<Part> parts;
  for_each_match(index, text, scratch, [&](size_t begin, size_t end, bool is_match) {
    parts.push_back({begin, end, is_match != rule.inverted});
  });
  for (const Part& part : merged(parts, rule.behavior)) {
    run(index + 1, text.substr(part.begin, part.end - part.begin), first && part.begin == 0, scratch, sink);
  }
}

void PreTokenizer::run_metaspace(size_t index, std::string_view text, bool first, Scratch& scratch,
                                 WordSink& sink) const {
  const PreTokenizerStep& rule = steps_[index].rule;
  const std::string& mark = rule.replacement;
  std::string& replaced = scratch.steps_[index].text;
  replaced.clear();
  const bool prepends = rule.prepend == Prepend::always || (rule.prepend == Prepend::first && first);
  if (prepends && text[0] != ' ' && !text.starts_with(mark)) replaced += mark;
  append_replaced(text, " ", mark, replaced, most_rewritten(text.size()));
  const std::string_view all = replaced;
  if (!rule.split) return run(index + 1, all, first, scratch, sink);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end =
        std::min(all.find(mark, all.substr(begin).starts_with(mark) ? begin + mark.size() : begin), all.size());
    run(index + 1, all.substr(begin, end - begin), first && begin == 0, scratch, sink);
    begin = end;
  }
}

}  // namespace keel
