#include "keel/base/options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "keel/base/config.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/options_internal.h"
#include "keel/base/options_state_internal.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

std::string word_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

template <class T>
T number_of(const Json& value, std::string_view name) {
  if (!value.is_number()) throw Error(ErrorKind::internal, "option " + std::string(name) + " is not a number");
  return value.get<T>();
}

}  // namespace

const Options::State::Entry& Options::State::entry(std::string_view name) const {
  const auto found = entries.find(name);
  if (found == entries.end()) throw Error(ErrorKind::internal, "option " + std::string(name) + " is not declared");
  return found->second;
}

const std::vector<Json>& Options::State::all(std::string_view name) const {
  const Entry& found = entry(name);
  return found.values.empty() ? found.defaults : found.values;
}

const Json* Options::State::find(std::string_view name) const {
  const std::vector<Json>& values = all(name);
  return values.empty() ? nullptr : &values.back();
}

const Json& Options::State::get(std::string_view name) const {
  if (const Json* value = find(name)) return *value;
  throw Error(ErrorKind::usage, std::string(name) + " must be given", "", how_it_is_called);
}

Options::Options() : state_(std::make_unique<State>()) {}
Options::Options(Options&&) noexcept = default;
Options& Options::operator=(Options&&) noexcept = default;
Options::~Options() = default;

const std::string& Options::command() const noexcept {
  return state_->command;
}
const std::vector<std::string>& Options::arguments() const noexcept {
  return state_->arguments;
}

bool Options::is_given(std::string_view name) const {
  return !state_->entry(name).values.empty();
}
bool Options::has(std::string_view name) const {
  return state_->find(name) != nullptr;
}
bool Options::flag(std::string_view name) const {
  const Json* value = state_->find(name);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string Options::text(std::string_view name) const {
  return word_of(state_->get(name));
}
int64_t Options::integer(std::string_view name) const {
  return number_of<int64_t>(state_->get(name), name);
}
double Options::real(std::string_view name) const {
  return number_of<double>(state_->get(name), name);
}
bool Options::is_word(std::string_view name) const {
  const Json* value = state_->find(name);
  const auto& choices = state_->entry(name).option.choices;
  return value != nullptr && value->is_string() &&
         std::find(choices.begin(), choices.end(), value->get_ref<const std::string&>()) != choices.end();
}

std::optional<std::string> Options::find_text(std::string_view name) const {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}
std::optional<int64_t> Options::find_integer(std::string_view name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}
std::optional<double> Options::find_real(std::string_view name) const {
  return has(name) ? std::optional(real(name)) : std::nullopt;
}

std::vector<std::string> Options::texts(std::string_view name) const {
  std::vector<std::string> values;
  for (const Json& value : state_->all(name)) values.push_back(word_of(value));
  return values;
}
std::vector<int64_t> Options::integers(std::string_view name) const {
  std::vector<int64_t> values;
  for (const Json& value : state_->all(name)) values.push_back(number_of<int64_t>(value, name));
  return values;
}
std::vector<double> Options::reals(std::string_view name) const {
  std::vector<double> values;
  for (const Json& value : state_->all(name)) values.push_back(number_of<double>(value, name));
  return values;
}

const JsonDocument* Options::State::config_document() {
  if (!entries.contains("--config")) return nullptr;
  const Json* value = find("--config");
  if (value == nullptr) return nullptr;
  if (config_file) return &*config_file;
  const std::string path = word_of(*value);
  if (path.starts_with("recipe:")) {
    throw Error(ErrorKind::usage, "unknown recipe " + quoted_name(path.substr(7)), "--config",
                "this version installs no recipes; give a JSON file");
  }
  const JsonLimits limits;
  if (path == "-") {
    config_file.emplace(read_stdin(limits.max_bytes, ErrorKind::config), "stdin", ErrorKind::config, limits);
  } else {
    config_file.emplace(read_json(path, ErrorKind::config, limits));
  }
  return &*config_file;
}

void Options::apply(Config& config) const {
  if (const JsonDocument* document = state_->config_document()) config.apply(*document, ConfigLayer::file);
  if (state_->entries.contains("--set")) {
    for (const std::string& assignment : texts("--set")) config.apply_set(assignment);
  }
  for (const auto& [name, entry] : state_->entries) {
    if (!entry.option.config_key.empty()) {
      config.name_option(entry.option.config_key, name + " " + detail::value_name(entry.option));
    }
    if (!entry.option.config_key.empty() && !entry.values.empty()) {
      config.apply_flag(entry.option.config_key, entry.last_text, name);
    }
  }
}

}  // namespace keel
