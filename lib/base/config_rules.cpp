#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "keel/base/config_internal.h"
#include "keel/base/quantity.h"
#include "keel/base/suggest.h"

namespace keel::detail {
namespace {

constexpr double kLargestExact = 9007199254740992.0;  // 2^53

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string describe_range(const ConfigKey& key) {
  const bool low = std::isfinite(key.minimum);
  const bool high = std::isfinite(key.maximum);
  const std::string least = (key.above_minimum ? "above " : "of at least ") + format_real(key.minimum);
  if (low && high && key.above_minimum) return " " + least + " and at most " + format_real(key.maximum);
  if (low && high) return " from " + format_real(key.minimum) + " to " + format_real(key.maximum);
  if (low) return " " + least;
  if (high) return " of at most " + format_real(key.maximum);
  return "";
}

std::string describe_type(const ConfigKey& key) {
  const std::string range = describe_range(key);
  switch (key.type) {
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integer:
      return "an integer" + range;
    case ConfigType::real:
      return "a number" + range;
    case ConfigType::text:
      return "a text";
    case ConfigType::choice:
      return "one of " + join(key.choices);
    case ConfigType::size:
      return "a size such as 4096, 8GB or 512MiB";
    case ConfigType::amount:
      return "a count such as 4096, 100k, 10B or 1Ki";
    case ConfigType::duration:
      return "a duration such as 90, 30m or 2h30m";
    case ConfigType::integer_list:
      return "a list of integers" + range;
    case ConfigType::real_list:
      return "a list of numbers" + range;
    case ConfigType::text_list:
      return "a list of texts";
    case ConfigType::any:
      break;
  }
  return "a value";
}

bool is_list(ConfigType type) {
  return type == ConfigType::integer_list || type == ConfigType::real_list || type == ConfigType::text_list;
}

bool in_range(const ConfigKey& key, double value) {
  return key.above_minimum ? value > key.minimum && value <= key.maximum : value >= key.minimum && value <= key.maximum;
}

/// Whole numbers, also as 1e9; false for anything else.
bool to_integer(Json& value) {
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    value = value.get<int64_t>();
    return true;
  }
  if (!value.is_number_float()) return value.is_number_integer();
  const double real = value.get<double>();
  if (real != std::floor(real) || std::abs(real) > kLargestExact) return false;
  value = static_cast<int64_t>(real);
  return true;
}

bool to_real(Json& value) {
  if (!value.is_number()) return false;
  value = value.get<double>();
  return true;
}

template <class Parsed>
bool to_quantity(Json& value, std::optional<Parsed> (*parse)(std::string_view)) {
  if (!value.is_string()) return false;
  const auto parsed = parse(value.get_ref<const std::string&>());
  if (!parsed) return false;
  value = *parsed;
  return true;
}

/// One value that is no list, into its stored form.
bool accept_scalar(const ConfigKey& key, ConfigType type, Json& value) {
  switch (type) {
    case ConfigType::boolean:
      return value.is_boolean();
    case ConfigType::integer:
      return to_integer(value) && in_range(key, value.get<double>());
    case ConfigType::real:
      return to_real(value) && in_range(key, value.get<double>());
    case ConfigType::size:
    case ConfigType::amount:
      return (to_quantity(value, type == ConfigType::size ? parse_size : parse_amount) || to_integer(value)) &&
             value.get<int64_t>() >= 0 && in_range(key, value.get<double>());
    case ConfigType::duration:
      return (to_quantity(value, parse_duration) || to_real(value)) && value.get<double>() >= 0 &&
             in_range(key, value.get<double>());
    case ConfigType::text:
      return value.is_string();
    default:
      return true;
  }
}

ConfigType element_type(ConfigType type) {
  switch (type) {
    case ConfigType::integer_list:
      return ConfigType::integer;
    case ConfigType::real_list:
      return ConfigType::real;
    case ConfigType::text_list:
      return ConfigType::text;
    default:
      return type;
  }
}

bool accept_list(const ConfigKey& key, Json& value) {
  if (!value.is_array()) return false;
  return std::all_of(value.begin(), value.end(),
                     [&](Json& element) { return accept_scalar(key, element_type(key.type), element); });
}

bool is_choice(const ConfigKey& key, const Json& value) {
  return value.is_string() &&
         std::find(key.choices.begin(), key.choices.end(), value.get_ref<const std::string&>()) != key.choices.end();
}

std::string shown(const Json& value) {
  std::string text = json_text(value);
  constexpr size_t kMost = 60;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  if (value.is_string()) return "'" + text.substr(1, text.size() - 2) + "'";
  return text;
}

/// Text that is not JSON, for a key of a type that is not text.
Json number_of_text(ConfigType type, const std::string& text) {
  if (type == ConfigType::integer) {
    if (const auto integer = parse_integer(text)) return *integer;
  }
  if (type == ConfigType::real) {
    if (const auto real = parse_real(text)) return *real;
  }
  return text;
}

Json list_of_text(ConfigType type, const std::string& text) {
  Json list = Json::array();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    list.push_back(type == ConfigType::text ? Json(part) : number_of_text(type, part));
    begin = end + 1;
  }
  return list;
}

}  // namespace

std::string describe_values(const ConfigKey& key) {
  std::string text = describe_type(key);
  if (key.type != ConfigType::choice && !key.choices.empty()) text += ", or " + join(key.choices);
  return text;
}

Json value_of_text(const ConfigKey& key, const std::string& text) {
  const bool plain = key.type == ConfigType::text || key.type == ConfigType::choice || key.type == ConfigType::size ||
                     key.type == ConfigType::amount || key.type == ConfigType::duration;
  Json value;
  try {
    value = parse_json(text, "", ErrorKind::config);
  } catch (const Error&) {
    return is_list(key.type) && !is_choice(key, text) ? list_of_text(element_type(key.type), text)
                                                      : number_of_text(key.type, text);
  }
  if (value.is_null() || value.is_string()) return value;
  if (plain) return text;
  if (is_list(key.type) && !value.is_array()) return list_of_text(element_type(key.type), text);
  return value;
}

std::optional<ValueProblem> check_value(const ConfigKey& key, Json& value) {
  if (is_choice(key, value)) return std::nullopt;
  if (key.type == ConfigType::choice && value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return ValueProblem{"unknown " + key.path + " " + shown(value), suggestion(text, key.choices)};
  }
  const Json original = value;
  const bool accepted = key.type == ConfigType::choice ? false
                        : is_list(key.type)            ? accept_list(key, value)
                                                       : accept_scalar(key, key.type, value);
  if (accepted) return std::nullopt;
  value = original;
  std::string hint;
  if (value.is_string() && !key.choices.empty()) {
    hint = suggestion(value.get_ref<const std::string&>(), key.choices);
    if (!hint.starts_with("did you mean")) hint.clear();
  }
  return ValueProblem{key.path + " must be " + describe_values(key) + ", found " + shown(value), hint};
}

}  // namespace keel::detail
