#define PCRE2_CODE_UNIT_WIDTH 8
#include "keel/tokenizer/split_pattern.h"

#include <fmt/core.h>
#include <pcre2.h>

#include <array>

#include "keel/base/error.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr uint32_t kMaxSteps = 10'000'000;
constexpr uint32_t kMaxHeapKiB = 64 << 10;
constexpr size_t kJitStackBytes = 32 << 20;  // what a run of a million spaces takes
constexpr std::string_view kSpaces =
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kWords = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";

/// Walks through a pattern once and writes PCRE2's spelling of it.
class Translator {
 public:
  Translator(const std::string& pattern, const std::string& name) : pattern_(pattern), name_(name) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        character(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::usage, "the split pattern uses " + what + ", which is not read by this version", name_);
  }
  char next(size_t offset = 1) const { return at_ + offset < pattern_.size() ? pattern_[at_ + offset] : '\0'; }
  void copy(size_t bytes = 1) {
    out_.append(pattern_, at_, bytes);
    at_ += bytes;
  }

  void escape() {
    const char c = next();
    if (c == '\0') refuse("a backslash at its end");
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_letter) return copy(2);
    switch (c) {
      case 's':
      case 'S':
        return char_class(kSpaces, c == 'S');
      case 'w':
      case 'W':
        return char_class(kWords, c == 'W');
      case 'u':
        return four_digits();
      case 'p':
      case 'P':
      case 'x':
        return with_braces();
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
        return copy(2);
      case 'A':
      case 'z':
        if (!in_class_) return copy(2);
        [[fallthrough]];
      default:
        refuse(fmt::format("\\{}", c));
    }
  }

  void char_class(std::string_view characters, bool inverted) {
    if (in_class_ && inverted) refuse("\\S or \\W inside brackets");
    if (!in_class_) out_ += inverted ? "[^" : "[";
    out_ += characters;
    if (!in_class_) out_ += "]";
    at_ += 2;
  }

  // \p{L} \pL \x{20} \x20
  void with_braces() {
    const size_t end = next(2) == '{' ? pattern_.find('}', at_) : at_ + 1;
    if (end == std::string::npos) refuse("a brace without its end");
    copy(end + 1 - at_);
  }

  void four_digits() {
    for (size_t i = 2; i < 6; ++i) {
      const char c = next(i);
      if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
        refuse("\\u without four hexadecimal digits");
    }
    out_ += "\\x{" + pattern_.substr(at_ + 2, 4) + "}";
    at_ += 6;
  }

  void class_character(char c) {
    if (c == '[') refuse("brackets inside brackets");
    if (c == '&' && next() == '&') refuse("&& inside brackets");
    if (c == ']' && at_ > class_begin_) in_class_ = false;
    if (c == ']' && at_ == class_begin_) refuse("empty brackets");
    copy();
  }

  void character(char c) {
    if (c == '[') {
      in_class_ = true;
      copy();
      if (at_ < pattern_.size() && pattern_[at_] == '^') copy();
      class_begin_ = at_;
      return;
    }
    if (c == '(' && next() == '*') refuse("(*");
    if (c == '(' && next() == '?') check_group();
    if (c == '{' && next() == ',') refuse("{,");
    if (c == '}' && next() == '+') refuse("}+");
    copy();
  }

  // (?: (?= (?! (?> (?<= (?<! (?i: (?i) (?-i)
  void check_group() {
    if (std::string_view(":=!>").find(next(2)) != std::string_view::npos) return;
    if (next(2) == '<' && (next(3) == '=' || next(3) == '!')) return;
    for (size_t i = 2;; ++i) {
      const char c = next(i);
      if (c == ')' || c == ':') return;
      if (c != 'i' && c != '-') refuse(fmt::format("the group {}", pattern_.substr(at_, 4)));
    }
  }

  const std::string& pattern_;
  const std::string& name_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_begin_ = 0;
};

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text;
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const noexcept { Free(object); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

}  // namespace

std::string pattern_for_pcre2(const std::string& pattern, const std::string& name) {
  return Translator(pattern, name).run();
}

struct SplitPattern::State {
  Owned<pcre2_code, pcre2_code_free> code;
  bool jit = false;
};

SplitPattern::SplitPattern(const std::string& pattern, const std::string& name) : state_(std::make_unique<State>()) {
  if (pattern.size() > kMaxPatternBytes)
    throw Error(ErrorKind::usage, "a split pattern of more than 16 KiB is not read by this version", name);
  const std::string translated = pattern_for_pcre2(pattern, name);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(pcre2_compile_context_create(nullptr));
  if (!context) throw Error(ErrorKind::memory, "not enough memory for a split pattern", name);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  state_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                                   &offset, context.get()));
  if (!state_->code) {
    throw Error(ErrorKind::usage, fmt::format("a split pattern that cannot be used: {}", pcre2_message(error)), name);
  }
  state_->jit = pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

struct SplitPattern::Matcher::State {
  const pcre2_code* code = nullptr;
  bool jit = false;
  Owned<pcre2_match_data, pcre2_match_data_free> data;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
  int calls = 0;
};

SplitPattern::Matcher::Matcher(const SplitPattern& pattern) : state_(std::make_unique<State>()) {
  state_->code = pattern.state_->code.get();
  state_->jit = pattern.state_->jit;
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (!state_->data || !state_->context) throw Error(ErrorKind::memory, "not enough memory for a split pattern");
  pcre2_set_match_limit(state_->context.get(), kMaxSteps);
  pcre2_set_heap_limit(state_->context.get(), kMaxHeapKiB);
  if (state_->jit) {
    state_->stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
}

SplitPattern::Matcher::~Matcher() = default;
SplitPattern::Matcher::Matcher(Matcher&&) noexcept = default;

std::optional<SplitPattern::Match> SplitPattern::Matcher::find(std::string_view text, size_t at) {
  if ((++state_->calls & 0x3FF) == 0) throw_if_stopped();
  const auto run = [&](auto match, uint32_t options) {
    return match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, state_->data.get(),
                 state_->context.get());
  };
  int result = state_->jit ? run(pcre2_jit_match, 0) : PCRE2_ERROR_JIT_STACKLIMIT;
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(pcre2_match, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw Error(ErrorKind::format, "the tokenizer's split pattern takes too long or too much memory on this text: " +
                                       pcre2_message(result));
  }
  const size_t* ends = pcre2_get_ovector_pointer(state_->data.get());
  return Match{ends[0], ends[1]};
}

}  // namespace keel
