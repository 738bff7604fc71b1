#include "keel/eval/template.h"

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/eval/python_text.h"
#include "keel/eval/template_expression.h"

namespace keel {
namespace {

/// Text, or an expression.
struct Part {
  std::string text;
  std::unique_ptr<const detail::Expression> expression;
};

/// The end of an expression that begins at `at`: the first "}}" outside a literal.
std::optional<size_t> find_end(std::string_view text, size_t at) {
  char quote = 0;
  for (; at + 1 < text.size(); ++at) {
    if (quote != 0) {
      if (text[at] == '\\') {
        ++at;
      } else if (text[at] == quote) {
        quote = 0;
      }
    } else if (text[at] == '\'' || text[at] == '"') {
      quote = text[at];
    } else if (text[at] == '}' && text[at + 1] == '}') {
      return at;
    }
  }
  return std::nullopt;
}

std::vector<Part> parse_parts(std::string_view text, const std::string& where) {
  std::vector<Part> parts;
  std::string plain;
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("{%") || rest.starts_with("{#") || rest.starts_with("{{-")) {
      throw Error(ErrorKind::config, "a template holds {% %}, {# #} or {{- -}}, which are not supported", where,
                  "expressions in {{ }} are");
    }
    if (!rest.starts_with("{{")) {
      plain += text[at++];
      continue;
    }
    const auto end = find_end(text, at + 2);
    if (!end) throw Error(ErrorKind::config, "a template's {{ has no }}", where);
    if (!plain.empty()) parts.push_back({.text = std::exchange(plain, {})});
    parts.push_back({.expression = detail::parse_expression(text.substr(at + 2, *end - at - 2), where)});
    at = *end + 2;
  }
  if (!plain.empty()) parts.push_back({.text = std::move(plain)});
  return parts;
}

}  // namespace

struct Template::State {
  std::string source;
  std::vector<Part> parts;
};

Template::Template(std::string text, const std::string& where) : state_(std::make_unique<State>()) {
  state_->source = std::move(text);
  state_->parts = parse_parts(state_->source, where);
}

Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

const std::string& Template::source() const {
  return state_->source;
}

Json Template::value(const Json& row) const {
  if (state_->parts.size() == 1 && state_->parts[0].expression) return state_->parts[0].expression->evaluate(row);
  return text(row);
}

std::string Template::text(const Json& row) const {
  std::string out;
  for (const Part& part : state_->parts) {
    out += part.expression ? python_str(part.expression->evaluate(row)) : part.text;
  }
  return out;
}

}  // namespace keel
