#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "keel/base/config.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/options_internal.h"
#include "keel/base/paragraph.h"
#include "keel/base/quantity.h"

namespace keel {
namespace {

constexpr size_t kWidestName = 34;

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
std::string two_columns(const std::vector<Row>& rows, size_t columns) {
  size_t width = 0;
  for (const Row& row : rows) {
    if (row.name.size() <= std::min(kWidestName, columns / 3)) width = std::max(width, row.name.size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = row.name;
    if (line.size() > width && !row.help.empty()) line += "\n" + std::string(width + 2, ' ');
    line.resize(std::max(line.size(), row.help.empty() ? 0 : width), ' ');
    std::string between = "  ";
    for (const std::string& part :
         row.help.empty() ? std::vector<std::string>{} : wrap(row.help, columns - width - 4)) {
      line += between + part;
      between = "\n" + std::string(width + 4, ' ');
    }
    text += "  " + line + "\n";
  }
  return text;
}

std::string rows(const std::vector<const Option*>& options, bool full, size_t columns) {
  std::vector<Row> table;
  for (const Option* option : options)
    table.push_back({left_column(*option), option->help + (full ? facts(*option) : "")});
  return two_columns(table, columns);
}

/// The option that sets a key, among those that --set stands beside.
const Option* option_setting(const std::vector<const Option*>& options, const std::string& key) {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const Option* o) { return o->config_key == key; });
  return found == options.end() ? nullptr : *found;
}

/// The settings of --config and --set; "" without such options.
std::string config_rows(const Tool& tool, const std::vector<const Option*>& options, size_t columns) {
  const auto is_set = [](const Option* option) { return option->name == "--set"; };
  if (tool.config == nullptr || std::none_of(options.begin(), options.end(), is_set)) return "";
  std::vector<Row> table;
  for (const ConfigKey& key : tool.config->keys()) {
    if (const Option* own = option_setting(options, key.path)) {
      table.push_back({key.path, "See " + detail::names_of(*own).long_name + "."});
      continue;
    }
    Option option = option_of_key(*tool.config, key.path, "--" + key.path);
    option.config_key.clear();
    std::string what =
        option.type == OptionType::choice ? " [one of " + fmt::format("{}", fmt::join(option.choices, ", ")) + "]" : "";
    table.push_back({key.path, key.help + what + facts(option)});
  }
  return "\n" + paragraph("Settings (groups and keys of the --config file, or --set KEY=VALUE):", columns, 2) + "\n" +
         two_columns(table, columns);
}

std::string usage_line(const Tool& tool, const Command* command, size_t columns) {
  constexpr size_t kIndent = 7;  // of "Usage: "
  const auto wrapped = [&](const std::string& line) { return paragraph(line, columns, kIndent) + "\n"; };
  std::string text = "Usage: " + tool.name;
  if (command != nullptr) text += " " + command->name;
  if (command == nullptr && !tool.commands.empty()) {
    if (tool.command_required) return wrapped(text + " COMMAND [OPTIONS]");
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
  return wrapped(text + (optional_options ? " [OPTIONS]" : ""));
}

std::string command_rows(const Tool& tool, size_t columns) {
  std::vector<Row> table;
  for (const Command& command : tool.commands) table.push_back({command.name, command.summary});
  return "\nCommands:\n" + two_columns(table, columns);
}

std::string example_rows(const std::vector<Example>& examples, size_t columns) {
  if (examples.empty()) return "";
  std::string text = "\nExamples:\n";
  for (const Example& example : examples) {
    text += "  " + example.command + "\n";
    if (!example.what.empty()) text += "      " + paragraph(example.what, columns, 6) + "\n";
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

std::string headline(const Tool& tool, const Command* command, size_t columns) {
  const std::string text =
      command == nullptr ? tool.name + ": " + tool.summary : tool.name + " " + command->name + ": " + command->summary;
  return paragraph(text, columns, 2) + "\n";
}

/// Options under their headings, in the order in which the headings first occur, General last.
std::string grouped_rows(const std::vector<const Option*>& options, size_t columns) {
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
  for (const auto& [name, members] : groups) text += "\n" + name + ":\n" + rows(members, true, columns);
  return text;
}

std::vector<const Option*> own_options(const Command& command) {
  std::vector<const Option*> options;
  for (const Option& option : command.options) options.push_back(&option);
  return options;
}

}  // namespace

std::string brief_help(const Tool& tool, std::string_view name, int width) {
  const auto columns = static_cast<size_t>(width);
  const Command* command = command_named(tool, name);
  std::string text = headline(tool, command, columns) + "\n" + usage_line(tool, command, columns);
  if (command == nullptr && !tool.commands.empty()) text += command_rows(tool, columns);
  std::vector<const Option*> shown;
  for (const Option* option : detail::options_for(tool, command)) {
    if (option->brief && !option->hidden) shown.push_back(option);
  }
  text += "\n" + rows(shown, false, columns);
  return text + example_rows(examples_of(tool, command), columns);
}

std::string full_help(const Tool& tool, std::string_view name, int width) {
  const auto columns = static_cast<size_t>(width);
  const Command* command = command_named(tool, name);
  std::string text = headline(tool, command, columns) + "\n" + usage_line(tool, command, columns);
  std::vector<const Option*> all = detail::options_for(tool, command);
  const std::string common = grouped_rows(all, columns);
  if (command == nullptr && !tool.commands.empty()) {
    text += command_rows(tool, columns);
    for (const Command& each : tool.commands) {
      text += "\n" + headline(tool, &each, columns) + usage_line(tool, &each, columns);
      text += grouped_rows(own_options(each), columns);
      for (const Option& option : each.options) all.push_back(&option);
    }
    text += "\nFor all commands:\n";
  }
  text += common + config_rows(tool, all, columns);
  return text + example_rows(examples_of(tool, command), columns);
}

}  // namespace keel
