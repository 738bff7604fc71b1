#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/options_internal.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/suggest.h"

namespace keel {
namespace detail {

OptionNames names_of(const Option& option) {
  const size_t comma = option.name.find(',');
  if (comma == std::string::npos) return {"", option.name};
  return {option.name.substr(0, comma), option.name.substr(comma + 1)};
}

bool is_positional(const Option& option) {
  return !option.name.starts_with("-");
}

std::string default_text(const Option& option) {
  if (!option.initial.empty()) return option.initial;
  std::string text = option.shown_default;
  std::erase_if(text, [](char c) { return c == '"' || c == '[' || c == ']'; });
  return text;
}

std::string negated_name(const Option& option) {
  return "--no-" + names_of(option).long_name.substr(2);
}

std::string value_name(const Option& option) {
  if (!option.value.empty()) return option.value;
  switch (option.type) {
    case OptionType::flag:
      return {};
    case OptionType::text:
      return "TEXT";
    case OptionType::integer:
    case OptionType::real:
    case OptionType::size:
    case OptionType::amount:
      return "N";
    case OptionType::duration:
      return "TIME";
    case OptionType::file:
      return "FILE";
    case OptionType::directory:
      return "DIR";
    case OptionType::choice:
      break;
  }
  std::string names;
  for (const std::string& choice : option.choices) names += (names.empty() ? "" : "|") + choice;
  return names;
}

ConfigKey rule_of(const Option& option) {
  ConfigKey rule{.path = names_of(option).long_name,
                 .unit = option.unit,
                 .minimum = option.minimum,
                 .maximum = option.maximum,
                 .above_minimum = option.above_minimum,
                 .choices = option.choices};
  switch (option.type) {
    case OptionType::choice:
      rule.type = ConfigType::choice;
      break;
    case OptionType::integer:
      rule.type = ConfigType::integer;
      break;
    case OptionType::real:
      rule.type = ConfigType::real;
      break;
    case OptionType::size:
      rule.type = ConfigType::size;
      break;
    case OptionType::amount:
      rule.type = ConfigType::amount;
      break;
    case OptionType::duration:
      rule.type = ConfigType::duration;
      break;
    default:
      rule.type = ConfigType::text;
  }
  return rule;
}

const std::vector<Option>& general_options() {
  static const std::vector<Option> kOptions = {
      {.name = "-h", .type = OptionType::flag, .group = "General", .help = "A short help with examples."},
      {.name = "--help", .type = OptionType::flag, .group = "General", .help = "All options, with defaults and units."},
      {.name = "--version", .type = OptionType::flag, .group = "General", .help = "The version.", .brief = false},
      {.name = "--quiet",
       .type = OptionType::flag,
       .group = "General",
       .help = "Only errors on stderr, no progress.",
       .brief = false},
      {.name = "--log-level",
       .type = OptionType::choice,
       .value = "LEVEL",
       .initial = "info",
       .choices = {"debug", "info", "warning", "error", "off"},
       .group = "General",
       .help = "Least important message to show.",
       .brief = false},
      {.name = "--completions",
       .type = OptionType::choice,
       .value = "SHELL",
       .choices = {"bash", "zsh", "fish"},
       .group = "General",
       .help = "Print a completion script for the shell.",
       .brief = false},
      {.name = "--describe-options",
       .type = OptionType::flag,
       .group = "General",
       .help = "Print all options as JSON.",
       .brief = false,
       .hidden = true}};
  return kOptions;
}

const Command* find_command(const Tool& tool, std::string_view name) {
  const auto found = std::find_if(tool.commands.begin(), tool.commands.end(),
                                  [&](const Command& command) { return command.name == name; });
  return found == tool.commands.end() ? nullptr : &*found;
}

std::vector<const Option*> options_for(const Tool& tool, const Command* command) {
  std::vector<const Option*> options;
  const auto add = [&](const std::vector<Option>& list, bool positionals) {
    for (const Option& option : list) {
      if (positionals || !is_positional(option)) options.push_back(&option);
    }
  };
  if (command != nullptr) add(command->options, true);
  add(tool.options, command == nullptr);
  add(general_options(), true);
  return options;
}

}  // namespace detail

Option threads_option() {
  return {.name = "--threads",
          .type = OptionType::integer,
          .initial = "0",
          .minimum = 0,
          .maximum = 4096,
          .group = "Execution",
          .help = "Threads to use; 0 = the cores this process may use (affinity, cgroup, SLURM_CPUS_PER_TASK).",
          .brief = false};
}

Option seed_option(const std::string& config_key) {
  return {.name = "--seed",
          .type = OptionType::integer,
          .minimum = 0,
          .config_key = config_key,
          .group = "Execution",
          .help = "Seed of all random choices.",
          .brief = false};
}

std::vector<std::string> setting_completions(const ConfigSchema& schema) {
  std::vector<std::string> all;
  for (const ConfigKey& key : schema.keys()) {
    all.push_back(key.path + "=");
    for (const std::string& word : key.choices) all.push_back(key.path + "=" + word);
    if (key.type == ConfigType::boolean) all.insert(all.end(), {key.path + "=true", key.path + "=false"});
  }
  return all;
}

std::vector<Option> config_options(const ConfigSchema& schema) {
  return {{.name = "--config",
           .type = OptionType::file,
           .value = "FILE|recipe:NAME",
           .group = "Config",
           .help = "Settings as JSON, from a file, a recipe or - for stdin."},
          {.name = "--set",
           .value = "KEY=VALUE",
           .completions = setting_completions(schema),
           .repeatable = true,
           .group = "Config",
           .help = "Set one key of the config, as in --set train.steps=100."},
          {.name = "--print-config",
           .type = OptionType::flag,
           .group = "Config",
           .help = "Print the resolved config as JSON and stop.",
           .brief = false},
          {.name = "--origins",
           .type = OptionType::flag,
           .group = "Config",
           .help = "With --print-config: one line a key, with where its value came from.",
           .brief = false}};
}

Option progress_option() {
  return {.name = "--progress",
          .type = OptionType::choice,
          .initial = "auto",
          .choices = {"auto", "plain", "json", "none"},
          .group = "General",
          .help = "How to show progress on stderr; auto = a bar on a terminal, else plain lines.",
          .brief = false};
}

Option force_option() {
  return {.name = "--force", .type = OptionType::flag, .group = "Output", .help = "Replace output that exists."};
}

Option resume_option() {
  return {.name = "--resume", .type = OptionType::flag, .group = "Output", .help = "Continue what was begun."};
}

Option report_option() {
  return {.name = "--report",
          .type = OptionType::file,
          .group = "Output",
          .help = "Also write the JSON report to this file (- = stdout).",
          .brief = false};
}

std::vector<Option> device_options() {
  return {
      {.name = "--device",
       .value = "cpu|cuda[:N]|cuda-emulated",
       .completions = {"cpu", "cuda", "cuda-emulated"},
       .group = "Execution",
       .help =
           "Where to compute; by default CUDA if usable, else the CPU. cuda-emulated runs CUDA's code on the CPU, for "
           "tests."},
      {.name = "--deterministic",
       .type = OptionType::flag,
       .group = "Execution",
       .help = "Same bits in every run on the same machine, where that costs speed.",
       .brief = false}};
}

namespace {

OptionType option_type_of(ConfigType type) {
  switch (type) {
    case ConfigType::boolean:
      return OptionType::flag;
    case ConfigType::integer:
    case ConfigType::integer_list:
      return OptionType::integer;
    case ConfigType::real:
    case ConfigType::real_list:
      return OptionType::real;
    case ConfigType::size:
      return OptionType::size;
    case ConfigType::amount:
      return OptionType::amount;
    case ConfigType::duration:
      return OptionType::duration;
    case ConfigType::choice:
      return OptionType::choice;
    default:
      return OptionType::text;
  }
}

}  // namespace

Option option_of_key(const ConfigSchema& schema, const std::string& key, const std::string& name) {
  const ConfigKey* found = schema.find(key);
  if (found == nullptr) throw Error(ErrorKind::internal, "config key '" + key + "' is not declared");
  Option option{.name = name,
                .type = option_type_of(found->type),
                .shown_default = found->initial,
                .unit = found->unit,
                .minimum = found->minimum,
                .maximum = found->maximum,
                .above_minimum = found->above_minimum,
                .choices = found->choices,
                .config_key = key,
                .group = "Config",
                .help = found->help};
  option.negatable = option.type == OptionType::flag;
  option.list = found->type == ConfigType::integer_list || found->type == ConfigType::real_list ||
                found->type == ConfigType::text_list;
  return option;
}

int threads_of(const Options& options) {
  const int64_t asked = options.integer("--threads");
  return asked > 0 ? static_cast<int>(asked) : available_cores();
}

std::string device_of(const Options& options) {
  static const std::vector<std::string> kKnown = {"cpu", "cuda", "cuda-emulated"};
  const auto given = options.find_text("--device");
  if (!given) return "auto";
  const std::string& device = *given;
  const std::string name = device.substr(0, device.find(':'));
  const bool numbered = name.size() < device.size();
  const auto number = numbered ? parse_integer(device.substr(name.size() + 1)) : std::optional<int64_t>(0);
  if (numbered && (name != "cuda" || !number || *number < 0 || *number > 1023)) {
    throw Error(ErrorKind::usage, "unknown device '" + device + "'", "--device", "cpu, cuda, cuda:N or cuda-emulated");
  }
  if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
    throw Error(ErrorKind::usage, "unknown device '" + device + "'", "--device", suggestion(name, kKnown));
  }
  return device;
}

Json describe_options(const Tool& tool) {
  static constexpr const char* kTypes[] = {"flag", "text",   "choice",   "integer", "real",
                                           "size", "amount", "duration", "file",    "directory"};
  static_assert(std::size(kTypes) == static_cast<size_t>(OptionType::directory) + 1);
  const auto describe = [](const std::vector<Option>& options) {
    Json list = Json::array();
    for (const Option& option : options) {
      if (option.hidden) continue;
      Json entry = {{"name", option.name}, {"type", kTypes[static_cast<size_t>(option.type)]}, {"help", option.help}};
      if (const std::string value = detail::value_name(option); !value.empty()) entry["value"] = value;
      if (const std::string initial = detail::default_text(option); !initial.empty()) entry["default"] = initial;
      if (!option.unit.empty()) entry["unit"] = option.unit;
      if (std::isfinite(option.minimum)) entry["minimum"] = option.minimum;
      if (std::isfinite(option.maximum)) entry["maximum"] = option.maximum;
      if (!option.choices.empty()) entry["choices"] = option.choices;
      if (!option.config_key.empty()) entry["config_key"] = option.config_key;
      if (!option.group.empty()) entry["group"] = option.group;
      entry["required"] = option.required;
      entry["repeatable"] = option.repeatable;
      list.push_back(std::move(entry));
    }
    return list;
  };
  Json commands = Json::array();
  for (const Command& command : tool.commands) {
    commands.push_back({{"name", command.name}, {"summary", command.summary}, {"options", describe(command.options)}});
  }
  return {{"tool", tool.name},
          {"summary", tool.summary},
          {"options", describe(tool.options)},
          {"commands", std::move(commands)},
          {"general", describe(detail::general_options())}};
}

}  // namespace keel
