#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel/base/config.h"
#include "keel/base/options.h"

namespace keel::detail {

/// The names of an option: "-o,--out" -> short "-o", long "--out"; a positional's name is its long one.
struct OptionNames {
  std::string short_name;
  std::string long_name;
};
OptionNames names_of(const Option& option);
bool is_positional(const Option& option);
/// "--no-shuffle" for a negatable flag "--shuffle".
std::string negated_name(const Option& option);

/// The default for help; "" if there is none.
std::string default_text(const Option& option);

/// "N", "FILE", "plain|parse": what stands for the value in help.
std::string value_name(const Option& option);

/// The checks of an option's value, as those of a config key.
ConfigKey rule_of(const Option& option);

/// Options that every tool has, after its own.
const std::vector<Option>& general_options();

/// The command of that name; nullptr for "" or if there is none.
const Command* find_command(const Tool& tool, std::string_view name);

/// What is accepted after a command's name: its options, the tool's, the general ones. Without a command the tool's and
/// the general ones. The pointers live as long as the tool.
std::vector<const Option*> options_for(const Tool& tool, const Command* command);

/// What answers instead of running: "--help", "-h", "--version", "--completions", "--describe-options"; "" for none.
struct Request {
  std::string kind;
  std::string argument;  // the shell of --completions
  std::string command;   // the command before it, "" for the tool
};
Request find_request(const Tool& tool, const std::vector<std::string>& arguments);

}  // namespace keel::detail
