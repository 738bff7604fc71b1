#include <algorithm>
#include <nlohmann/json.hpp>

#include "keel/base/config.h"
#include "keel/base/config_state_internal.h"

namespace keel {
namespace {

Json& nested(Json& root, std::string_view path) {
  Json* at = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    at = &(*at)[std::string(path.substr(begin, end - begin))];
    begin = end + 1;
  }
  return *at;
}

std::string text_or_absent(const Json& value) {
  return value.is_null() ? "absent" : json_text(value);
}

}  // namespace

Json Config::to_json() const {
  Json root = Json::object();
  for (const ConfigKey& key : state_->schema.keys()) {
    if (has(key.path)) nested(root, key.path) = value(key.path);
  }
  return root;
}

std::string Config::print(bool origins) const {
  if (!origins) return json_text(to_json(), 2) + "\n";
  std::vector<std::pair<std::string, std::string>> lines;
  size_t width = 0;
  for (const ConfigKey& key : state_->schema.keys()) {
    if (!has(key.path)) continue;
    lines.emplace_back(key.path + " = " + json_text(value(key.path)), origin(key.path).text());
    constexpr size_t kWidest = 60;
    if (const size_t length = lines.back().first.size(); length <= kWidest) width = std::max(width, length);
  }
  std::string text;
  for (auto& [setting, from] : lines) {
    setting.resize(std::max(setting.size(), width), ' ');
    text += setting + "  # " + from + "\n";
  }
  return text;
}

std::vector<ConfigDifference> differences(const Config& before, const Config& after) {
  std::vector<ConfigDifference> found;
  for (const ConfigKey& key : before.schema().keys()) {
    const Json old_value = before.has(key.path) ? before.value(key.path) : Json();
    const Json new_value = after.has(key.path) ? after.value(key.path) : Json();
    if (old_value != new_value) found.push_back({key.path, text_or_absent(old_value), text_or_absent(new_value)});
  }
  return found;
}

}  // namespace keel
