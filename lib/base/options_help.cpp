#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "keel/base/config.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/options_internal.h"
#include "keel/base/quantity.h"

namespace keel {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kWidestName = 34;

/// Breaks a text into lines of at most `width` at spaces.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

std::string left_column(const Option& option) {
  const auto names = detail::names_of(option);
  const std::string value = detail::value_name(option);
  if (detail::is_positional(option)) return names.long_name + (option.repeatable ? "..." : "");
  std::string text = names.short_name.empty() ? "" : names.short_name + ", ";
  text += option.negatable ? "--[no-]" + names.long_name.substr(2) : names.long_name;
  return value.empty() ? text : text + " " + value;
}

std::string range_text(const Option& option) {
  const bool low = std::isfinite(option.minimum);
  const bool high = option.maximum < 9e15;  // above, a limit of the number format and not of the option
  if (low && high && !option.above_minimum) return format_real(option.minimum) + " to " + format_real(option.maximum);
  std::string text;
  if (low) text = (option.above_minimum ? "above " : "at least ") + format_real(option.minimum);
  if (high) text += (text.empty() ? "at most " : ", at most ") + format_real(option.maximum);
  return text;
}

/// "[default: 1; tokens; at least 1; repeatable]".
std::string facts(const Option& option) {
  std::vector<std::string> parts;
  if (option.required) parts.emplace_back("required");
  if (const std::string initial = detail::default_text(option); !initial.empty())
    parts.push_back("default: " + initial);
  if (!option.unit.empty()) parts.push_back("unit: " + option.unit);
  if (const std::string range = range_text(option); !range.empty()) parts.push_back(range);
  if (!option.choices.empty() && !option.value.empty()) {
    parts.push_back((option.type == OptionType::choice ? "one of " : "or ") +
                    fmt::format("{}", fmt::join(option.choices, ", ")));
  } else if (!option.choices.empty() && option.type != OptionType::choice) {
    parts.push_back("or " + fmt::format("{}", fmt::join(option.choices, ", ")));
  }
  if (option.list) parts.emplace_back("comma-separated");
  if (option.repeatable && !detail::is_positional(option)) parts.emplace_back("repeatable");
  if (!option.config_key.empty()) parts.push_back("sets " + option.config_key);
  return parts.empty() ? "" : " [" + fmt::format("{}", fmt::join(parts, "; ")) + "]";
}

/// A name and what it means.
struct Row {
  std::string name, help;
};

/// Two columns; names that are too long have a line of their own.
std::string two_columns(const std::vector<Row>& rows) {
  size_t width = 0;
  for (const Row& row : rows) {
    if (row.name.size() <= kWidestName) width = std::max(width, row.name.size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = row.name;
    if (line.size() > width && !row.help.empty()) line += "\n" + std::string(width + 2, ' ');
    line.resize(std::max(line.size(), row.help.empty() ? 0 : width), ' ');
    std::string between = "  ";
    for (const std::string& part :
         row.help.empty() ? std::vector<std::string>{} : wrap(row.help, kColumns - width - 4)) {
      line += between + part;
      between = "\n" + std::string(width + 4, ' ');
    }
    text += "  " + line + "\n";
  }
  return text;
}

std::string rows(const std::vector<const Option*>& options, bool full) {
  std::vector<Row> table;
  for (const Option* option : options)
    table.push_back({left_column(*option), option->help + (full ? facts(*option) : "")});
  return two_columns(table);
}

/// The settings of --config and --set that have no option of their own.
std::string config_rows(const Tool& tool) {
  const ConfigSchema& schema = *tool.config;
  const auto has_option = [&](const std::string& key) {
    const auto sets = [&](const Option& option) { return option.config_key == key; };
    return std::any_of(tool.options.begin(), tool.options.end(), sets) ||
           std::any_of(tool.commands.begin(), tool.commands.end(), [&](const Command& command) {
             return std::any_of(command.options.begin(), command.options.end(), sets);
           });
  };
  std::vector<Row> table;
  for (const ConfigKey& key : schema.keys()) {
    if (has_option(key.path)) continue;
    Option option = option_of_key(schema, key.path, "--" + key.path);
    option.config_key.clear();
    std::string what =
        option.type == OptionType::choice ? " [one of " + fmt::format("{}", fmt::join(option.choices, ", ")) + "]" : "";
    table.push_back({key.path, key.help + what + facts(option)});
  }
  if (table.empty()) return "";
  return "\nSettings (groups and keys of the --config file, or --set KEY=VALUE):\n" + two_columns(table);
}

std::string usage_line(const Tool& tool, const Command* command) {
  std::string text = "Usage: " + tool.name;
  if (command != nullptr) text += " " + command->name;
  if (command == nullptr && !tool.commands.empty()) {
    if (tool.command_required) return text + " COMMAND [OPTIONS]\n";
    text += " [COMMAND]";
  }
  bool optional_options = false;
  for (const Option* option : detail::options_for(tool, command)) {
    if (option->hidden) continue;
    if (detail::is_positional(*option)) {
      const std::string name = left_column(*option);
      text += option->required ? " " + name : " [" + name + "]";
    } else if (option->required) {
      text += " " + detail::names_of(*option).long_name + " " + detail::value_name(*option);
    } else {
      optional_options = true;
    }
  }
  return text + (optional_options ? " [OPTIONS]\n" : "\n");
}

std::string command_rows(const Tool& tool) {
  size_t width = 0;
  for (const Command& command : tool.commands) width = std::max(width, command.name.size());
  std::string text = "\nCommands:\n";
  for (const Command& command : tool.commands)
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  return text;
}

std::string example_rows(const std::vector<Example>& examples) {
  if (examples.empty()) return "";
  std::string text = "\nExamples:\n";
  for (const Example& example : examples) {
    text += "  " + example.command + "\n";
    if (!example.what.empty()) text += "      " + example.what + "\n";
  }
  return text;
}

std::vector<Example> examples_of(const Tool& tool, const Command* command) {
  if (command != nullptr) return command->examples;
  std::vector<Example> examples = tool.examples;
  if (!examples.empty()) return examples;
  for (const Command& each : tool.commands) {
    if (!each.examples.empty()) examples.push_back(each.examples.front());
  }
  return examples;
}

const Command* command_named(const Tool& tool, std::string_view name) {
  const Command* command = detail::find_command(tool, name);
  if (command == nullptr && !name.empty()) {
    throw Error(ErrorKind::internal, "no command '" + std::string(name) + "'");
  }
  return command;
}

std::string headline(const Tool& tool, const Command* command) {
  if (command == nullptr) return tool.name + ": " + tool.summary + "\n\n";
  return tool.name + " " + command->name + ": " + command->summary + "\n\n";
}

/// Options under their headings, in the order in which the headings first occur, General last.
std::string grouped_rows(const std::vector<const Option*>& options) {
  std::vector<std::pair<std::string, std::vector<const Option*>>> groups;
  for (const Option* option : options) {
    if (option->hidden) continue;
    std::string name = detail::is_positional(*option) ? "Arguments" : option->group.empty() ? "Options" : option->group;
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
    if (found == groups.end()) found = groups.insert(groups.end(), {std::move(name), {}});
    found->second.push_back(option);
  }
  std::stable_partition(groups.begin(), groups.end(), [](const auto& group) { return group.first == "Arguments"; });
  std::stable_partition(groups.begin(), groups.end(), [](const auto& group) { return group.first != "General"; });
  std::string text;
  for (const auto& [name, members] : groups) text += "\n" + name + ":\n" + rows(members, true);
  return text;
}

std::vector<const Option*> own_options(const Command& command) {
  std::vector<const Option*> options;
  for (const Option& option : command.options) options.push_back(&option);
  return options;
}

}  // namespace

std::string brief_help(const Tool& tool, std::string_view name) {
  const Command* command = command_named(tool, name);
  std::string text = headline(tool, command) + usage_line(tool, command);
  if (command == nullptr && !tool.commands.empty()) text += command_rows(tool);
  std::vector<const Option*> shown;
  for (const Option* option : detail::options_for(tool, command)) {
    if (option->brief && !option->hidden) shown.push_back(option);
  }
  text += "\n" + rows(shown, false);
  return text + example_rows(examples_of(tool, command));
}

std::string full_help(const Tool& tool, std::string_view name) {
  const Command* command = command_named(tool, name);
  std::string text = headline(tool, command) + usage_line(tool, command);
  if (command == nullptr && !tool.commands.empty()) {
    text += command_rows(tool);
    for (const Command& each : tool.commands) {
      text += "\n" + tool.name + " " + each.name + ": " + each.summary + "\n" + usage_line(tool, &each);
      text += grouped_rows(own_options(each));
    }
    text += "\nFor all commands:\n";
  }
  text += grouped_rows(detail::options_for(tool, command));
  if (tool.config != nullptr) text += config_rows(tool);
  return text + example_rows(examples_of(tool, command));
}

}  // namespace keel
