#include <algorithm>
#include <array>

#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/options_internal.h"
#include "keel/base/suggest.h"

namespace keel {
namespace {

std::string identifier(const std::string& name) {
  std::string text = "_" + name;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// 'text' for a shell, quotes inside escaped as the three shells all understand.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> offered_values(const Option& option) {
  std::vector<std::string> values = option.choices;
  values.insert(values.end(), option.completions.begin(), option.completions.end());
  return values;
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> names_for_shell(const Option& option) {
  const auto names = detail::names_of(option);
  std::vector<std::string> all;
  if (!names.short_name.empty()) all.push_back(names.short_name);
  all.push_back(names.long_name);
  if (option.negatable) all.push_back(detail::negated_name(option));
  return all;
}

std::vector<const Option*> shown_options(const Tool& tool, const Command* command) {
  std::vector<const Option*> options = detail::options_for(tool, command);
  std::erase_if(options, [](const Option* option) { return option->hidden; });
  return options;
}

/// Every command and, for a tool whose commands are optional or that has none, the tool itself (nullptr).
std::vector<const Command*> contexts(const Tool& tool) {
  std::vector<const Command*> all = {nullptr};
  for (const Command& command : tool.commands) all.push_back(&command);
  return all;
}

std::string context_name(const Command* command) {
  return command == nullptr ? "" : command->name;
}

/// True for --set and its like, whose values are KEY=VALUE.
bool takes_settings(const Option& option) {
  return !option.completions.empty() && option.completions[0].ends_with('=');
}

/// What such options offer: the "key=", and apart from them the "key=value".
struct Settings {
  std::string function;  // completes them
  std::vector<std::string> keys, values;
};

/// One for each list of completions, whichever options share it.
class SettingsList {
 public:
  explicit SettingsList(const Tool& tool) : prefix_(identifier(tool.name) + "_settings") {
    const auto add = [&](const std::vector<Option>& options) {
      for (const Option& option : options) {
        if (takes_settings(option) && find(option) == nullptr) put(option.completions);
      }
    };
    add(tool.options);
    for (const Command& command : tool.commands) add(command.options);
  }

  const std::vector<Settings>& all() const { return all_; }
  const std::string& function_of(const Option& option) const { return find(option)->function; }

 private:
  const Settings* find(const Option& option) const {
    const auto found = std::find(lists_.begin(), lists_.end(), option.completions);
    return found == lists_.end() ? nullptr : &all_[static_cast<size_t>(found - lists_.begin())];
  }

  void put(const std::vector<std::string>& completions) {
    Settings settings{
        .function = prefix_ + (all_.empty() ? "" : "_" + std::to_string(all_.size() + 1)), .keys = {}, .values = {}};
    for (const std::string& word : completions) (word.ends_with('=') ? settings.keys : settings.values).push_back(word);
    lists_.push_back(completions);
    all_.push_back(std::move(settings));
  }

  std::string prefix_;
  std::vector<std::vector<std::string>> lists_;
  std::vector<Settings> all_;
};

bool positionals_are_directories(const std::vector<const Option*>& options) {
  const auto is_other = [](const Option* option) {
    return detail::is_positional(*option) && option->type != OptionType::directory;
  };
  const auto is_directory = [](const Option* option) {
    return detail::is_positional(*option) && option->type == OptionType::directory;
  };
  return std::any_of(options.begin(), options.end(), is_directory) &&
         std::none_of(options.begin(), options.end(), is_other);
}

// ---- bash

std::string bash_values(const Option& option, const SettingsList& settings) {
  if (takes_settings(option)) return settings.function_of(option);
  if (const auto values = offered_values(option); !values.empty()) {
    return "_keel_words " + shell_quoted(join(values, " "));
  }
  if (option.type == OptionType::directory) return "_keel_paths -d";
  if (option.type == OptionType::file || option.type == OptionType::text) return "_keel_paths -f";
  return "COMPREPLY=()";
}

std::string bash_context(const Tool& tool, const Command* command, const SettingsList& settings) {
  const auto options = shown_options(tool, command);
  std::string text = "    " + shell_quoted(context_name(command)) + ")\n      case \"$prev\" in\n";
  std::vector<std::string> names;
  for (const Option* option : options) {
    if (detail::is_positional(*option)) continue;
    const auto own = names_for_shell(*option);
    names.insert(names.end(), own.begin(), own.end());
    if (option->type == OptionType::flag) continue;
    text += "        " + join(own, "|") + ") " + bash_values(*option, settings) + "; return ;;\n";
  }
  text += "      esac\n      if [[ $cur == -* ]]; then _keel_words " + shell_quoted(join(names, " ")) + "\n";
  if (command == nullptr && !tool.commands.empty()) {
    std::vector<std::string> commands;
    for (const Command& each : tool.commands) commands.push_back(each.name);
    text += "      else _keel_words " + shell_quoted(join(commands, " ")) + "\n";
  } else {
    text += std::string("      else _keel_paths ") + (positionals_are_directories(options) ? "-d" : "-f") + "\n";
  }
  return text + "      fi ;;\n";
}

std::string bash_script(const Tool& tool) {
  const std::string function = identifier(tool.name);
  std::string commands;
  for (const Command& command : tool.commands) commands += (commands.empty() ? "" : "|") + command.name;
  const SettingsList settings(tool);
  // "--set a.b=c" comes as four words where "=" breaks words, as it does unless the user has changed that: `word` is
  // the whole, `cur` the part that a reply replaces.
  std::string text =
      "# bash completion of " + tool.name + "; made by: " + tool.name + " --completions bash\n" + function + R"sh(() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev='' command='' word='' i
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} == = || ${COMP_WORDS[i-1]} == = ]]; then
      word+=${COMP_WORDS[i]}
    else
      prev=$word word=${COMP_WORDS[i]}
    fi
  done
  if [[ $word == --*=* ]]; then prev=${word%%=*} word=${word#*=}; fi
  if [[ $cur == = ]]; then cur=''; elif [[ $cur == --*=* ]]; then return; fi
  _keel_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
  _keel_paths() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen "$1" -- "$cur"); }
)sh";
  for (const Settings& each : settings.all()) {
    text += "  " + each.function + "() {\n    if [[ $word != *=* ]]; then\n      compopt -o nospace\n" +
            "      mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(join(each.keys, " ")) + " -- \"$word\")\n" +
            "    else\n      mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(join(each.values, " ")) +
            " -- \"$word\")\n" +
            "      if [[ $cur != *=* ]]; then COMPREPLY=(\"${COMPREPLY[@]#*=}\"); fi\n    fi\n  }\n";
  }
  if (!commands.empty()) {
    text += "  for i in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case \"$i\" in\n      " + commands +
            ") command=$i; break ;;\n    esac\n  done\n";
  }
  text += "  case \"$command\" in\n";
  for (const Command* command : contexts(tool)) text += bash_context(tool, command, settings);
  return text + "  esac\n}\ncomplete -F " + function + " " + tool.name + "\n";
}

// ---- zsh

/// Text inside [...] or between colons of an _arguments specification.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Option& option, const SettingsList& settings) {
  if (takes_settings(option)) return settings.function_of(option);
  if (const auto values = offered_values(option); !values.empty()) {
    std::vector<std::string> escaped;
    for (const std::string& value : values) escaped.push_back(zsh_escaped(value));
    return "(" + join(escaped, " ") + ")";
  }
  if (option.type == OptionType::directory) return "_files -/";
  if (option.type == OptionType::file || option.type == OptionType::text) return "_files";
  return " ";
}

std::string zsh_specification(const Option& option, const SettingsList& settings) {
  const std::string message =
      zsh_escaped(detail::value_name(option).empty() ? option.name : detail::value_name(option));
  if (detail::is_positional(option)) {
    return "    " + shell_quoted((option.repeatable ? "*:" : ":") + zsh_escaped(option.name) + ":" +
                                 zsh_action(option, settings));
  }
  std::string lines;
  for (const std::string& name : names_for_shell(option)) {
    std::string spec = (option.repeatable ? "*" : "") + name;
    if (option.type != OptionType::flag && name.starts_with("--")) spec += "=";
    spec += "[" + zsh_escaped(option.help) + "]";
    if (option.type != OptionType::flag) spec += ":" + message + ":" + zsh_action(option, settings);
    lines += (lines.empty() ? "    " : " \\\n    ") + shell_quoted(spec);
  }
  return lines;
}

std::string zsh_arguments(const Tool& tool, const Command* command, const SettingsList& settings,
                          const std::string& more) {
  std::string text = "  _arguments -s -S";
  if (!more.empty()) text += " -C";
  for (const Option* option : shown_options(tool, command)) text += " \\\n" + zsh_specification(*option, settings);
  if (!more.empty()) text += " \\\n" + more;
  return text;
}

std::string zsh_script(const Tool& tool) {
  const std::string function = identifier(tool.name);
  std::string text = "#compdef " + tool.name + "\n# zsh completion of " + tool.name + "; made by: " + tool.name +
                     " --completions zsh\n";
  const SettingsList settings(tool);
  for (const Settings& each : settings.all()) {
    text += each.function + "() {\n  if [[ $PREFIX == *=* ]]; then\n    compadd -- " + join(each.values, " ") +
            "\n  else\n    compadd -S '' -- " + join(each.keys, " ") + "\n  fi\n}\n";
  }
  for (const Command& command : tool.commands) {
    text +=
        identifier(tool.name + "-" + command.name) + "() {\n" + zsh_arguments(tool, &command, settings, "") + "\n}\n";
  }
  text += function + "() {\n";
  if (tool.commands.empty()) {
    text += zsh_arguments(tool, nullptr, settings, "") + "\n";
  } else {
    std::string described;
    std::string branches;
    for (const Command& command : tool.commands) {
      described += " " + command.name + "\\:" + "\"" + zsh_escaped(command.summary) + "\"";
      branches += "    " + command.name + ") " + identifier(tool.name + "-" + command.name) + " ;;\n";
    }
    text += "  local context state state_descr line\n  typeset -A opt_args\n" +
            zsh_arguments(tool, nullptr, settings,
                          "    " + shell_quoted("1:command:((" + described.substr(1) + "))") + " \\\n    " +
                              shell_quoted("*::argument:->argument")) +
            "\n  [[ $state == argument ]] || return\n  case $line[1] in\n" + branches + "  esac\n";
  }
  // In a file of fpath this is the body of the function of the file's name; sourced, it registers itself.
  return text + "}\nif [[ $funcstack[1] == _" + tool.name + " ]]; then " + function + " \"$@\"; else compdef " +
         function + " " + tool.name + "; fi\n";
}

// ---- fish

std::string fish_line(const Tool& tool, const Option& option, const SettingsList& settings,
                      const std::string& condition) {
  if (detail::is_positional(option)) return {};
  std::string text;
  for (const std::string& name : names_for_shell(option)) {
    text += "complete -c " + tool.name + condition;
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (option.type != OptionType::flag) {
      const auto values = offered_values(option);
      text += " -r";
      if (takes_settings(option))
        text += " -f -a " + shell_quoted("(_" + settings.function_of(option) + ")");
      else if (!values.empty())
        text += " -f -a " + shell_quoted(join(values, " "));
      if (values.empty() && option.type == OptionType::directory) text += " -f -a '(__fish_complete_directories)'";
      if (values.empty() && (option.type == OptionType::file || option.type == OptionType::text)) text += " -F";
    }
    text += " -d " + shell_quoted(option.help) + "\n";
  }
  return text;
}

std::string fish_script(const Tool& tool) {
  std::string text = "# fish completion of " + tool.name + "; made by: " + tool.name + " --completions fish\n";
  const SettingsList settings(tool);
  for (const Settings& each : settings.all()) {
    const auto print = [](const std::vector<std::string>& words) {
      return words.empty() ? "" : "    printf '%s\\n' " + join(words, " ") + "\n";
    };
    text += "function _" + each.function +
            "\n  if string match -q '*=*' -- (string replace -r '^--[a-z-]+=' '' -- (commandline -ct))\n" +
            print(each.values) + "  else\n" + print(each.keys) + "  end\nend\n";
  }
  std::vector<std::string> commands;
  for (const Command& command : tool.commands) commands.push_back(command.name);
  const std::string none_yet = " -n " + shell_quoted("not __fish_seen_subcommand_from " + join(commands, " "));
  for (const Command& command : tool.commands) {
    text += "complete -c " + tool.name + none_yet + " -f -a " + command.name + " -d " + shell_quoted(command.summary) +
            "\n";
    const std::string seen = " -n " + shell_quoted("__fish_seen_subcommand_from " + command.name);
    for (const Option& option : command.options) {
      if (!option.hidden) text += fish_line(tool, option, settings, seen);
    }
  }
  for (const Option* option : shown_options(tool, nullptr)) text += fish_line(tool, *option, settings, "");
  return text;
}

}  // namespace

std::string completion_script(const Tool& tool, std::string_view shell) {
  static const std::array<std::string, 3> kShells = {"bash", "zsh", "fish"};
  if (shell == "bash") return bash_script(tool);
  if (shell == "zsh") return zsh_script(tool);
  if (shell == "fish") return fish_script(tool);
  throw Error(ErrorKind::usage, "no completions for the shell '" + std::string(shell) + "'", "--completions",
              suggestion(shell, kShells));
}

}  // namespace keel
