#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "keel/base/config.h"
#include "keel/base/config_internal.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/options_internal.h"
#include "keel/base/options_state_internal.h"
#include "keel/base/suggest.h"

namespace keel {
namespace detail {

Request find_request(const Tool& tool, const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    if (request.command.empty() && find_command(tool, argument) != nullptr) request.command = argument;
    if (argument == "--help" || argument == "-h" || argument == "--version" || argument == "--describe-options") {
      request.kind = argument;
      return request;
    }
    if (argument == "--completions" || argument.starts_with("--completions=")) {
      const size_t equals = argument.find('=');
      request.kind = "--completions";
      if (equals != std::string::npos) {
        request.argument = argument.substr(equals + 1);
      } else if (i + 1 < arguments.size()) {
        request.argument = arguments[i + 1];
      }
      return request;
    }
  }
  return request;
}

}  // namespace detail

namespace {

/// Values as CLI11 collects them, to be checked afterwards.
struct Collected {
  const Option* option;
  const Command* command;  // nullptr: the tool's
  std::vector<std::string> texts;
};

using Collection = std::deque<Collected>;  // stable addresses: CLI11 writes into them

void declare(CLI::App& app, const Option& option, const Command* command, Collection& collection) {
  Collected& collected = collection.emplace_back(Collected{&option, command, {}});
  if (option.type == OptionType::flag) {
    app.add_flag_callback(option.name, [&collected] { collected.texts.emplace_back("true"); });
    app.get_option(detail::names_of(option).long_name)->trigger_on_parse()->disable_flag_override();
    if (!option.negatable) return;
    const std::string negated = detail::negated_name(option);
    app.add_flag_callback(negated, [&collected] { collected.texts.emplace_back("false"); });
    app.get_option(negated)->trigger_on_parse()->disable_flag_override();
    return;
  }
  CLI::Option* added = app.add_option(option.name, collected.texts);
  if (!detail::is_positional(option)) {
    // One value each time it is given, any number of times.
    added->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  } else if (option.repeatable) {
    added->expected(-1);
  } else {
    added->expected(1)->allow_extra_args(false);
  }
}

std::vector<std::string> known_names(const Tool& tool, const Command* command) {
  std::vector<std::string> names;
  for (const Option* option : detail::options_for(tool, command)) {
    if (detail::is_positional(*option) || option->hidden) continue;
    names.push_back(detail::names_of(*option).long_name);
    if (option->negatable) names.push_back(detail::negated_name(*option));
  }
  return names;
}

/// The command that was looked for when an option is one of another command only.
std::string other_command_with(const Tool& tool, const std::string& name) {
  for (const Command& command : tool.commands) {
    for (const Option& option : command.options) {
      const auto names = detail::names_of(option);
      if (name == names.long_name || name == names.short_name) return command.name;
    }
  }
  return {};
}

std::string hint_for_option(const Tool& tool, const Command* command, const std::string& name) {
  if (std::string near = suggestion(name, known_names(tool, command));
      name.size() > 2 && near.starts_with("did you mean"))
    return near;
  if (const std::string other = other_command_with(tool, name); !other.empty()) {
    return "it belongs to '" + tool.name + " " + other + "'";
  }
  // An option that is a config key without an option of its own.
  std::string key =
      name.substr(name.find_first_not_of('-') == std::string::npos ? name.size() : name.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  if (tool.config == nullptr) return "--help lists all options";
  for (const ConfigKey& setting : tool.config->keys()) {
    const std::string& path = setting.path;
    if (path == key || path.ends_with("." + key) || path.starts_with(key + ".")) return "use --set " + path + "=...";
  }
  return "--help lists all options";
}

[[noreturn]] void refuse_rest(const Tool& tool, const Command* command, const std::vector<std::string>& rest) {
  const auto is_option = [](const std::string& token) { return token.size() > 1 && token[0] == '-'; };
  if (const auto option = std::find_if(rest.begin(), rest.end(), is_option); option != rest.end()) {
    const std::string name = option->substr(0, option->find('='));
    throw Error(ErrorKind::usage, "unknown option " + quoted_name(name), "", hint_for_option(tool, command, name));
  }
  if (!tool.commands.empty() && command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : tool.commands) names.push_back(known.name);
    throw Error(ErrorKind::usage, "unknown command " + quoted_name(rest[0]), "", suggestion(rest[0], names));
  }
  throw Error(ErrorKind::usage, "unexpected argument " + quoted_name(rest[0]), "", "--help shows what is expected");
}

/// True if a message of CLI11 is about the option: "--out: 1 required TEXT missing", "bos was given a disallowed flag
/// ...".
bool is_about(const std::string& what, const std::string& name) {
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  return what.starts_with(name + ":") || what.starts_with(name + " ") || what.starts_with(bare + " was given");
}

/// What is wrong with the form of the arguments, in our words where they say more than CLI11's.
[[noreturn]] void refuse_form(const Tool& tool, const Command* command, const CLI::ParseError& error) {
  const std::string what = error.what();
  for (const Option* option : detail::options_for(tool, command)) {
    const std::string name = detail::names_of(*option).long_name;
    if (!is_about(what, name) && !(option->negatable && is_about(what, detail::negated_name(*option)))) continue;
    if (option->type == OptionType::flag) throw Error(ErrorKind::usage, name + " takes no value");
    throw Error(ErrorKind::usage, name + " needs a value", "", name + " " + detail::value_name(*option));
  }
  throw Error(ErrorKind::usage, what);
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Json checked_value(const Option& option, const std::string& text) {
  if (text.empty() && (option.type == OptionType::file || option.type == OptionType::directory)) {
    throw Error(ErrorKind::usage, detail::names_of(option).long_name + " is an empty path");
  }
  const ConfigKey rule = detail::rule_of(option);
  Json value = rule.type == ConfigType::text ? Json(text) : detail::value_of_text(rule, text);
  if (value.is_null()) value = text;
  if (const auto problem = detail::check_value(rule, value)) {
    throw Error(ErrorKind::usage, problem->message, "", problem->hint);
  }
  return value;
}

std::vector<Json> checked_values(const Option& option, const std::vector<std::string>& texts) {
  std::vector<Json> values;
  for (const std::string& text : texts) {
    if (option.type == OptionType::flag) {
      values.emplace_back(text == "true");
    } else if (option.list) {
      for (const std::string& part : split_list(text)) values.push_back(checked_value(option, part));
    } else {
      values.push_back(checked_value(option, text));
    }
  }
  return values;
}

/// `--out --force` would take "--force" for a folder's name.
void refuse_option_as_value(const Tool& tool, const Command* command, const Collected& collected) {
  if (collected.option->type == OptionType::flag || detail::is_positional(*collected.option)) return;
  const auto known = known_names(tool, command);
  for (const std::string& text : collected.texts) {
    if (std::find(known.begin(), known.end(), text) == known.end()) continue;
    const std::string name = detail::names_of(*collected.option).long_name;
    throw Error(ErrorKind::usage, name + " needs a value, found the option '" + text + "'");
  }
}

/// All required options and arguments of the command that are missing, in one message.
void require_given(const Tool& tool, const Command* command, const Options& options, const std::string& hint) {
  std::string missing;
  for (const Option* option : detail::options_for(tool, command)) {
    const std::string name = detail::names_of(*option).long_name;
    if (option->required && !options.is_given(name)) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (missing.empty()) return;
  throw Error(ErrorKind::usage, missing + " must be given", "", hint);
}

/// Declares everything on the command line parser; values go to the result.
Collection declare_all(CLI::App& app, const Tool& tool) {
  Collection collection;
  app.set_help_flag();
  app.allow_extras();
  app.require_subcommand(0, 1);
  for (const Option& option : tool.options) declare(app, option, nullptr, collection);
  for (const Option& option : detail::general_options()) declare(app, option, nullptr, collection);
  for (const Command& command : tool.commands) {
    CLI::App* sub = app.add_subcommand(command.name);
    sub->set_help_flag();
    sub->fallthrough();
    sub->allow_extras();
    for (const Option& option : command.options) declare(*sub, option, &command, collection);
  }
  return collection;
}

/// Splits the arguments into values; the command that was given, if any.
const Command* split_arguments(CLI::App& app, const Tool& tool, const std::vector<std::string>& arguments) {
  const auto command = [&]() -> const Command* {
    const auto given = app.get_subcommands();
    return given.empty() ? nullptr : detail::find_command(tool, given.front()->get_name());
  };
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend() - (arguments.empty() ? 0 : 1));
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    refuse_form(tool, command(), error);
  }
  std::vector<std::string> rest = app.remaining(true);
  std::erase(rest, "--");  // the mark itself stays there too
  if (!rest.empty()) refuse_rest(tool, command(), rest);
  if (command() == nullptr && !tool.commands.empty() && tool.command_required) {
    throw Error(ErrorKind::usage, "no command given", "", "'" + tool.name + " -h' lists them");
  }
  return command();
}

}  // namespace

void Options::State::add(const Option& option, const std::vector<std::string>& texts) {
  Entry entry{option, checked_values(option, texts), {}, {}};
  if (!option.initial.empty()) entry.defaults = checked_values(option, {option.initial});
  if (!texts.empty()) entry.last_text = texts.back();
  entries.emplace(detail::names_of(option).long_name, std::move(entry));
}

Options parse_options(const Tool& tool, const std::vector<std::string>& arguments) {
  CLI::App app;
  const Collection collection = declare_all(app, tool);
  const Command* command = split_arguments(app, tool, arguments);

  Options options;
  options.state_->arguments = arguments;
  if (command != nullptr) options.state_->command = command->name;
  options.state_->how_it_is_called =
      "'" + tool.name + (command != nullptr ? " " + command->name : "") + " -h' shows how it is called";
  for (const Collected& collected : collection) {
    if (collected.command != nullptr && collected.command != command) continue;
    if (collected.command != command && detail::is_positional(*collected.option)) {
      if (!collected.texts.empty()) refuse_rest(tool, command, collected.texts);
      continue;
    }
    refuse_option_as_value(tool, command, collected);
    options.state_->add(*collected.option, collected.texts);
  }
  require_given(tool, command, options, options.state_->how_it_is_called);
  return options;
}

}  // namespace keel
