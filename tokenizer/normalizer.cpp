#include "keel/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "keel/base/error.h"
#include "keel/base/utf8.h"
#include "keel/tokenizer/large_part.h"
#include "keel/tokenizer/unicode.h"

namespace keel {
namespace {

using Kind = NormalizerStep::Kind;

bool composes(Kind form) {
  return form == Kind::nfc || form == Kind::nfkc;
}

// Characters that stay as they are and whose neighbours cannot change because of them.
bool is_inert(uint32_t c) {
  if (c < 0x80) return true;
  if ((c >= 0x1100 && c < 0x1200) || (c >= 0xAC00 && c < 0xD7A4)) return false;  // Hangul goes by arithmetic
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         property->comb_index == UINT16_MAX;
}

void append_decomposed(uint32_t c, int options, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts;  // Unicode's longest has 18
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                                         static_cast<utf8proc_option_t>(options), &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size()))
    throw Error(ErrorKind::internal, "utf8proc cannot decompose a character");
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Marks behind a character in the order of their classes; marks of one class stay in theirs.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto at = characters.begin(); at != characters.end(); ++at) {
    if (mark_class(*at) == 0) continue;
    const auto end = std::find_if(at, characters.end(), [&](auto c) { return mark_class(c) == 0; });
    std::stable_sort(at, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    at = end - 1;
  }
}

// A run whose ends do not interact with what is outside.
void append_run(Kind form, std::string_view run, std::vector<utf8proc_int32_t>& characters, std::string& out,
                size_t most) {
  const bool compatibility = form == Kind::nfkc || form == Kind::nfkd;
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  characters.clear();
  for (size_t at = 0; at < run.size(); at += character_bytes(run[at])) {
    append_decomposed(code_point(first_character(run.substr(at))), options, characters);
    check_rewritten(out.size() + characters.size(), most);
  }
  sort_marks(characters);
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (composes(form)) {
    count = utf8proc_normalize_utf32(characters.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0) throw Error(ErrorKind::internal, "utf8proc cannot compose a text");
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<uint32_t>(characters[i]));
  check_rewritten(out.size(), most);
}

// The first byte of a character that may change, or the end. Characters below U+0300 are stable in form C.
size_t find_unstable(Kind form, std::string_view text, size_t at) {
  const unsigned char stable_below = form == Kind::nfc ? 0xCC : 0x80;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= stable_below && !is_inert(code_point(first_character(text.substr(at))))) break;
    at += character_bytes(text[at]);
  }
  return at;
}

}  // namespace

void append_normal_form(Kind form, std::string_view text, std::string& out, size_t most) {
  std::vector<utf8proc_int32_t> characters;
  for (size_t done = 0; done < text.size();) {
    size_t begin = find_unstable(form, text, done);
    if (begin == text.size()) {
      out.append(text.substr(done));
      return;
    }
    if (begin > done) begin -= last_character(text.substr(done, begin - done)).size();
    size_t end = begin + character_bytes(text[begin]);
    while (end < text.size() && !is_inert(code_point(first_character(text.substr(end))))) {
      end += character_bytes(text[end]);
    }
    out.append(text.substr(done, begin - done));
    append_run(form, text.substr(begin, end - begin), characters, out, most);
    done = end;
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer, std::string& spare) const {
  const size_t most = most_rewritten(text.size());
  for (const NormalizerStep& step : steps_) {
    if (text.empty()) return text;
    spare.clear();
    switch (step.kind) {
      case Kind::prepend:
        check_rewritten(step.content.size() + text.size(), most);
        spare.append(step.content);
        spare.append(text);
        break;
      case Kind::replace:
        if (text.find(step.pattern) == std::string_view::npos) continue;
        append_replaced(text, step.pattern, step.content, spare, most);
        break;
      default:
        if (find_unstable(step.kind, text, 0) == text.size()) continue;
        append_normal_form(step.kind, text, spare, most);
    }
    buffer.swap(spare);
    text = buffer;
  }
  return text;
}

std::string Normalizer::applied(std::string_view text) const {
  std::string buffer, spare;
  return std::string(apply(text, buffer, spare));
}

}  // namespace keel
