#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/json.h"
#include "keel/base/utf8.h"

namespace keel {
namespace {

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const Json& value) {
    switch (value.type()) {
      case Json::value_t::object:
        return write_object(value);
      case Json::value_t::array:
        return write_array(value);
      case Json::value_t::string:
        return write_text(value.get_ref<const std::string&>());
      case Json::value_t::boolean:
        out_ += value.get<bool>() ? "true" : "false";
        return;
      case Json::value_t::number_integer:
        out_ += std::to_string(value.get<int64_t>());
        return;
      case Json::value_t::number_unsigned:
        out_ += std::to_string(value.get<uint64_t>());
        return;
      case Json::value_t::number_float:
        return write_real(value.get<double>());
      default:
        out_ += "null";
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void new_line() {
    out_ += '\n';
    out_.append(static_cast<size_t>(level_ * indent_), ' ');
  }

  template <class Items, class WriteItem>
  void write_items(const Items& items, char open, char close, bool one_line, WriteItem write_item) {
    out_ += open;
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += one_line && indent_ >= 0 ? ", " : ",";
      if (!one_line && indent_ >= 0) new_line();
      first = false;
      write_item(item);
    }
    --level_;
    if (!first && !one_line && indent_ >= 0) new_line();
    out_ += close;
  }

  void write_object(const Json& value) {
    write_items(value.get_ref<const Json::object_t&>(), '{', '}', false, [this](const auto& member) {
      write_text(member.first);
      out_ += indent_ >= 0 ? ": " : ":";
      write(member.second);
    });
  }

  void write_array(const Json& value) {
    const auto& items = value.get_ref<const Json::array_t&>();
    const bool plain = std::none_of(items.begin(), items.end(), [](const Json& item) { return item.is_structured(); });
    write_items(items, '[', ']', plain, [this](const Json& item) { write(item); });
  }

  void write_real(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    char text[32];
    const char* end = std::to_chars(text, text + sizeof text, value).ptr;
    const std::string_view digits(text, static_cast<size_t>(end - text));
    out_ += digits;
    if (digits.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  }

  void write_text(const std::string& text) {
    constexpr char kDigits[] = "0123456789abcdef";
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const unsigned char c = static_cast<unsigned char>(text[at]);
      const size_t length = utf8_length(std::string_view(text).substr(at));
      if (c == '"' || c == '\\') {
        out_ += {'\\', static_cast<char>(c)};
      } else if (c < 0x20 || c == 0x7F) {
        write_control(c, kDigits);
      } else if (length == 0) {
        out_ += "\xEF\xBF\xBD";
      } else {
        out_.append(text, at, length);
      }
      at += std::max<size_t>(length, 1);
    }
    out_ += '"';
  }

  void write_control(unsigned char c, const char* digits) {
    switch (c) {
      case '\n':
        out_ += "\\n";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\r':
        out_ += "\\r";
        return;
      default:
        out_ += std::string("\\u00") + digits[c >> 4] + digits[c & 15];
    }
  }

  int indent_;
  int level_ = 0;
  std::string out_;
};

}  // namespace

std::string json_text(const Json& value, int indent) {
  Writer writer(indent);
  writer.write(value);
  return writer.take();
}

}  // namespace keel
