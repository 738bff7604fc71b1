#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/options.h"

namespace keel {

struct Options::State {
  struct Entry {
    Option option;
    std::vector<Json> values;  // as given; true or false for flags
    std::vector<Json> defaults;
    std::string last_text;  // the last value as typed, for Config::apply_flag
  };

  /// Checks the values as typed and their default. Error(usage).
  void add(const Option& option, const std::vector<std::string>& texts);
  const Entry& entry(std::string_view name) const;
  /// The last value, given or default; nullptr if there is none.
  const Json* find(std::string_view name) const;
  /// find, or Error(usage) that it must be given.
  const Json& get(std::string_view name) const;
  /// All values, given or default.
  const std::vector<Json>& all(std::string_view name) const;

  /// The document of --config, read when first asked for; nullptr if none was given.
  const JsonDocument* config_document();

  std::optional<JsonDocument> config_file;
  std::string how_it_is_called;  // hint for what is missing
  std::string command;
  std::vector<std::string> arguments;
  std::map<std::string, Entry, std::less<>> entries;  // by long name
};

}  // namespace keel
