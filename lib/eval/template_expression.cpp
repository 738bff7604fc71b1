#include "keel/eval/template_expression.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/suggest.h"
#include "keel/eval/python_text.h"

namespace keel::detail {
namespace {

using Node = std::unique_ptr<const Expression>;
using Values = std::vector<Json>;

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::format, message);
}

const char* type_of(const Json& value) {
  return value.is_string()   ? "a text"
         : value.is_array()  ? "a list"
         : value.is_object() ? "an object"
         : value.is_null()   ? "null"
         : value.is_number() ? "a number"
                             : "true or false";
}

const std::string& text_of(const Json& value, const std::string& what) {
  if (!value.is_string()) fail(fmt::format("{} needs a text, found {}", what, type_of(value)));
  return value.get_ref<const std::string&>();
}

int64_t whole_of(const Json& value, const std::string& what) {
  if (!value.is_number_integer()) fail(fmt::format("{} needs a whole number, found {}", what, type_of(value)));
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)
    fail(fmt::format("{}: the number is too large", what));
  return value.get<int64_t>();
}

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  if (from.empty()) fail("replace needs a text to look for");
  return python_replace(text, from, to);
}

Json split(const std::string& text, const std::string& separator) {
  if (separator.empty()) fail("split needs a separator");
  Json parts = Json::array();
  size_t at = 0;
  for (size_t hit; (hit = text.find(separator, at)) != std::string::npos; at = hit + separator.size()) {
    parts.push_back(text.substr(at, hit - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::string upper_ascii(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) fail("upper knows ASCII alone");
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

Json index_of(const Json& list, const Json& value) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == value) return static_cast<int64_t>(i);
  }
  fail(fmt::format("{} is not one of {}", python_value_repr(value), python_value_repr(list)));
}

/// A method or filter: its name, how many arguments it takes, and what it does.
struct Function {
  size_t arguments;
  std::function<Json(const Json&, const Values&)> call;
};

const std::map<std::string, Function, std::less<>>& text_methods() {
  static const std::map<std::string, Function, std::less<>> functions = {
      {"strip", {0, [](const Json& s, const Values&) { return std::string(python_strip(text_of(s, "strip"))); }}},
      {"lstrip", {0, [](const Json& s, const Values&) { return std::string(python_lstrip(text_of(s, "lstrip"))); }}},
      {"rstrip", {0, [](const Json& s, const Values&) { return std::string(python_rstrip(text_of(s, "rstrip"))); }}},
      {"lower", {0, [](const Json& s, const Values&) { return python_lower(text_of(s, "lower")); }}},
      {"upper", {0, [](const Json& s, const Values&) { return upper_ascii(text_of(s, "upper")); }}},
      {"capitalize", {0, [](const Json& s, const Values&) { return python_capitalize(text_of(s, "capitalize")); }}},
      {"split", {1, [](const Json& s, const Values& a) { return split(text_of(s, "split"), text_of(a[0], "split")); }}},
      {"replace",
       {2,
        [](const Json& s, const Values& a) {
          return replaced(text_of(s, "replace"), text_of(a[0], "replace"), text_of(a[1], "replace"));
        }}},
      {"index",
       {1,
        [](const Json& list, const Values& a) {
          if (!list.is_array()) fail(fmt::format("index needs a list, found {}", type_of(list)));
          return index_of(list, a[0]);
        }}},
  };
  return functions;
}

Json attribute_of(const Json& value, const std::string& name) {
  const auto at = value.is_object() ? value.find(name) : value.end();
  if (!value.is_object() || at == value.end()) fail(fmt::format("there is no field {}", name));
  return *at;
}

Json joined(const Json& list, const std::string& separator) {
  if (!list.is_array()) fail(fmt::format("join needs a list, found {}", type_of(list)));
  std::vector<std::string> parts;
  for (const Json& item : list) parts.push_back(python_str(item));
  return fmt::format("{}", fmt::join(parts, separator));
}

Json to_integer(const Json& value) {
  if (value.is_number_integer()) return value;
  const std::string& text = text_of(value, "int");
  const std::string_view digits = python_strip(text);
  int64_t number = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  // Jinja's int gives 0 for what is none; a benchmark with such a row is damaged.
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size() || digits.empty()) {
    fail(fmt::format("int needs a whole number, found {}", python_repr(std::string_view(text))));
  }
  return number;
}

Json item_at(const Json& list, int64_t index) {
  const auto size = static_cast<int64_t>(list.size());
  const int64_t at = index < 0 ? index + size : index;
  if (!list.is_array() || at < 0 || at >= size) fail(fmt::format("there is no item {}", index));
  return list[static_cast<size_t>(at)];
}

Json mapped(const Json& list, const std::string& name) {
  if (!list.is_array()) fail(fmt::format("map needs a list, found {}", type_of(list)));
  Json out = Json::array();
  for (const Json& item : list) out.push_back(attribute_of(item, name));
  return out;
}

const std::map<std::string, Function, std::less<>>& filters() {
  static const std::map<std::string, Function, std::less<>> functions = {
      {"join", {1, [](const Json& list, const Values& a) { return joined(list, text_of(a[0], "join")); }}},
      {"map", {1, [](const Json& list, const Values& a) { return mapped(list, text_of(a[0], "map")); }}},
      {"trim", {0, [](const Json& s, const Values&) { return std::string(python_strip(text_of(s, "trim"))); }}},
      {"lower", text_methods().at("lower")},
      {"upper", text_methods().at("upper")},
      {"replace", text_methods().at("replace")},
      {"string", {0, [](const Json& value, const Values&) { return python_str(value); }}},
      {"int", {0, [](const Json& value, const Values&) { return to_integer(value); }}},
      {"list", {0, [](const Json& value, const Values&) { return value; }}},
      {"first", {0, [](const Json& value, const Values&) { return item_at(value, 0); }}},
      {"last", {0, [](const Json& value, const Values&) { return item_at(value, -1); }}},
      {"length",
       {0,
        [](const Json& value, const Values&) {
          return value.is_string() ? count_characters(value.get_ref<const std::string&>())
                                   : static_cast<int64_t>(value.size());
        }}},
  };
  return functions;
}

Json add(const Json& a, const Json& b) {
  if (a.is_string() && b.is_string()) return a.get<std::string>() + b.get<std::string>();
  if (a.is_number_integer() && b.is_number_integer()) {
    int64_t sum = 0;
    if (__builtin_add_overflow(whole_of(a, "+"), whole_of(b, "+"), &sum)) fail("the sum is too large");
    return sum;
  }
  if (!a.is_array() || !b.is_array()) fail(fmt::format("{} and {} cannot be added", type_of(a), type_of(b)));
  Json sum = a;
  for (const Json& item : b) sum.push_back(item);
  return sum;
}

class Literal final : public Expression {
 public:
  explicit Literal(Json value) : value_(std::move(value)) {}
  Json evaluate(const Json&) const override { return value_; }

 private:
  Json value_;
};

class Name final : public Expression {
 public:
  explicit Name(std::string name) : name_(std::move(name)) {}
  Json evaluate(const Json& row) const override { return attribute_of(row, name_); }

 private:
  std::string name_;
};

class Attribute final : public Expression {
 public:
  Attribute(Node of, std::string name) : of_(std::move(of)), name_(std::move(name)) {}
  Json evaluate(const Json& row) const override { return attribute_of(of_->evaluate(row), name_); }

 private:
  Node of_;
  std::string name_;
};

class Item final : public Expression {
 public:
  Item(Node of, Node index) : of_(std::move(of)), index_(std::move(index)) {}
  Json evaluate(const Json& row) const override {
    const Json of = of_->evaluate(row), index = index_->evaluate(row);
    return index.is_string() ? attribute_of(of, index.get<std::string>()) : item_at(of, whole_of(index, "[ ]"));
  }

 private:
  Node of_, index_;
};

class Slice final : public Expression {
 public:
  Slice(Node of, Node begin, Node end) : of_(std::move(of)), begin_(std::move(begin)), end_(std::move(end)) {}
  Json evaluate(const Json& row) const override {
    const Json list = of_->evaluate(row);
    if (!list.is_array()) fail(fmt::format("[ : ] needs a list, found {}", type_of(list)));
    const auto size = static_cast<int64_t>(list.size());
    const auto bound = [&](const Node& node, int64_t absent) {
      const int64_t at = node ? whole_of(node->evaluate(row), "[ : ]") : absent;
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    Json out = Json::array();
    for (int64_t i = bound(begin_, 0); i < bound(end_, size); ++i) out.push_back(list[static_cast<size_t>(i)]);
    return out;
  }

 private:
  Node of_, begin_, end_;
};

class List final : public Expression {
 public:
  explicit List(std::vector<Node> items) : items_(std::move(items)) {}
  Json evaluate(const Json& row) const override {
    Json out = Json::array();
    for (const Node& item : items_) out.push_back(item->evaluate(row));
    return out;
  }

 private:
  std::vector<Node> items_;
};

class Call final : public Expression {
 public:
  Call(Node of, const Function& function, std::vector<Node> arguments)
      : of_(std::move(of)), function_(function), arguments_(std::move(arguments)) {}
  Json evaluate(const Json& row) const override {
    Values values;
    for (const Node& argument : arguments_) values.push_back(argument->evaluate(row));
    return function_.call(of_->evaluate(row), values);
  }

 private:
  Node of_;
  const Function& function_;
  std::vector<Node> arguments_;
};

class Binary final : public Expression {
 public:
  Binary(char operation, Node left, Node right)
      : operation_(operation), left_(std::move(left)), right_(std::move(right)) {}
  Json evaluate(const Json& row) const override {
    const Json a = left_->evaluate(row), b = right_->evaluate(row);
    if (operation_ == '+') return add(a, b);
    if (operation_ == '~') return python_str(a) + python_str(b);
    int64_t difference = 0;
    if (__builtin_sub_overflow(whole_of(a, "-"), whole_of(b, "-"), &difference)) fail("the difference is too large");
    return difference;
  }

 private:
  char operation_;
  Node left_, right_;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Node whole() {
    // Every step of an expression takes a character, and evaluation goes as deep as there are steps.
    if (text_.size() > 2000) throw Error(ErrorKind::config, "a template's expression of more than 2000 bytes", where_);
    Node node = sum();
    skip_space();
    if (at_ < text_.size()) fail_at(fmt::format("'{}' is not understood", text_.substr(at_)));
    return node;
  }

 private:
  [[noreturn]] void fail_at(const std::string& message, const std::string& hint = {}) const {
    throw Error(ErrorKind::config, fmt::format("template {{{{{}}}}}: {}", text_, message), where_, hint);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_at(fmt::format("a '{}' is missing at '{}'", c, text_.substr(at_)));
  }

  Node sum() {
    if (++depth_ > 50) fail_at("it is nested too deeply");
    Node node = filtered();
    for (char c = peek(); c == '+' || c == '-' || c == '~'; c = peek()) {
      ++at_;
      node = std::make_unique<Binary>(c, std::move(node), filtered());
    }
    --depth_;
    return node;
  }

  Node filtered() {
    Node node = postfix();
    while (take('|')) {
      const std::string name = identifier();
      node = call(std::move(node), "filter", filters(), name, peek() == '(');
    }
    return node;
  }

  Node postfix() {
    Node node = primary();
    while (true) {
      if (take('.')) {
        const std::string name = identifier();
        if (peek() == '(') {
          node = call(std::move(node), "method", text_methods(), name, true);
        } else {
          node = std::make_unique<Attribute>(std::move(node), name);
        }
      } else if (take('[')) {
        node = subscript(std::move(node));
      } else {
        return node;
      }
    }
  }

  Node subscript(Node of) {
    Node begin = peek() == ':' ? nullptr : sum();
    if (take(']')) return std::make_unique<Item>(std::move(of), std::move(begin));
    expect(':');
    Node end = peek() == ']' ? nullptr : sum();
    expect(']');
    return std::make_unique<Slice>(std::move(of), std::move(begin), std::move(end));
  }

  Node call(Node of, const char* kind, const std::map<std::string, Function, std::less<>>& functions,
            const std::string& name, bool has_arguments) {
    const auto function = functions.find(name);
    if (function == functions.end()) {
      std::vector<std::string> names;
      for (const auto& entry : functions) names.push_back(entry.first);
      fail_at(fmt::format("there is no {} {}", kind, name), suggestion(name, names));
    }
    std::vector<Node> arguments;
    if (has_arguments) {
      expect('(');
      while (!take(')')) {
        if (!arguments.empty()) expect(',');
        if (name == "map") keyword("attribute");
        arguments.push_back(sum());
      }
    }
    if (name == "join" && arguments.empty()) arguments.push_back(std::make_unique<Literal>(""));
    if (arguments.size() != function->second.arguments) {
      fail_at(fmt::format("{} takes {} arguments, found {}", name, function->second.arguments, arguments.size()));
    }
    return std::make_unique<Call>(std::move(of), function->second, std::move(arguments));
  }

  void keyword(const std::string& name) {
    if (peek() == '\'' || peek() == '"' || identifier() != name || !take('=')) {
      fail_at(fmt::format("map is known as map({}='...') alone", name));
    }
  }

  Node primary() {
    const char c = peek();
    if (c == '\'' || c == '"') return std::make_unique<Literal>(quoted());
    if ((c >= '0' && c <= '9') || c == '-') return std::make_unique<Literal>(number());
    if (take('[')) {
      std::vector<Node> items;
      while (!take(']')) {
        if (!items.empty()) expect(',');
        items.push_back(sum());
      }
      return std::make_unique<List>(std::move(items));
    }
    if (take('(')) {
      Node node = sum();
      expect(')');
      return node;
    }
    return std::make_unique<Name>(identifier());
  }

  std::string identifier() {
    skip_space();
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > begin && text_[at_] >= '0' && text_[at_] <= '9'))) {
      ++at_;
    }
    if (at_ == begin) fail_at(fmt::format("a name is missing at '{}'", text_.substr(at_)));
    return std::string(text_.substr(begin, at_ - begin));
  }

  int64_t number() {
    int64_t value = 0;
    const auto end = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (end.ec != std::errc()) fail_at("a number is missing");
    at_ = static_cast<size_t>(end.ptr - text_.data());
    return value;
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'n')
          c = '\n';
        else if (c == 't')
          c = '\t';
        else if (c == 'r')
          c = '\r';
        else if (c != '\\' && c != '\'' && c != '"')
          fail_at(fmt::format("\\{} is not understood", c));
      }
      out += c;
    }
    if (at_ == text_.size()) fail_at("a text has no end");
    ++at_;
    return out;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::unique_ptr<const Expression> parse_expression(std::string_view text, const std::string& where) {
  return Parser(text, where).whole();
}

}  // namespace keel::detail
