#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

class Config;
class ConfigSchema;

enum class OptionType {
  flag,      ///< takes no value
  text,      ///
  choice,    ///< one of `choices`
  integer,   ///
  real,      ///
  size,      ///< bytes, "1G", "512MiB" (quantity.h)
  amount,    ///< a count, "100B", "1k" (quantity.h)
  duration,  ///< seconds, "2h30m"
  file,      ///< completed with files; existence is the tool's business
  directory,
};

/// One option or argument, declared once: parsing, checks, help and completions come from it.
struct Option {
  std::string name = {};  ///< "--steps", "-o,--out"; without dashes it is a positional argument: "INPUT"
  OptionType type = OptionType::text;
  std::string value = {};          ///< name of the value in help: "N", "FILE"; by type if empty
  std::string initial = {};        ///< default, as typed; "" = none
  std::string shown_default = {};  ///< for help only: the default that holds elsewhere (in the config)
  std::string unit = {};
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;             ///< minimum itself is refused
  std::vector<std::string> choices = {};  ///< of a choice; for other types words allowed beside the value ("auto")
  /// Offered by the shell, not enforced. "key=" offers keys, "key=value" the values once "key=" stands.
  std::vector<std::string> completions = {};
  bool required = false;
  bool repeatable = false;      ///< may be given several times; a positional takes all the rest
  bool list = false;            ///< comma-separated, each part checked: values come apart
  bool negatable = false;       ///< a flag that also exists as --no-NAME; the last one given holds
  std::string config_key = {};  ///< sets this key of a Config (Options::apply)
  std::string group = {};       ///< heading in --help; "Options" if empty
  std::string help = {};        ///< one sentence
  bool brief = true;            ///< shown by -h
  bool hidden = false;          ///< accepted, not shown
};

struct Example {
  std::string command;
  std::string what = {};
};

/// A subcommand: `keel-tokenize encode`.
struct Command {
  std::string name = {};
  std::string summary = {};  ///< one line
  std::vector<Option> options = {};
  std::vector<Example> examples = {};
};

/// What a program is called with. Every tool also has -h, --help, --version, --quiet, --log-level, --completions.
struct Tool {
  std::string name = {};               ///< "keel-train"
  std::string summary = {};            ///< one line
  std::vector<Option> options = {};    ///< of the tool, or of all its commands
  std::vector<Command> commands = {};  ///< none: the tool is one command
  bool command_required = true;        ///< false: options and arguments alone are fine too
  std::vector<Example> examples = {};
  /// The settings behind --config and --set (it outlives the tool): listed by --help, and an unknown option that is one
  /// of them gets the hint "--set train.steps=...".
  const ConfigSchema* config = nullptr;
};

/// What was asked for. Names are given as declared, with dashes ("--steps", for "-o,--out" the long one) or as "INPUT".
/// A name that was not declared is Error(internal).
class KEEL_API Options {
 public:
  Options(Options&&) noexcept;
  Options& operator=(Options&&) noexcept;
  ~Options();

  /// "" if the tool has none or none was given.
  const std::string& command() const noexcept;
  /// The program's arguments as typed, the name first.
  const std::vector<std::string>& arguments() const noexcept;

  /// True if given on the command line (--no-NAME included).
  bool is_given(std::string_view name) const;
  /// True if given or with a default.
  bool has(std::string_view name) const;
  bool flag(std::string_view name) const;
  /// The last value given, else the default; Error(usage) "--steps must be given: 'keel-x -h' shows ..." if there is
  /// none.
  std::string text(std::string_view name) const;
  int64_t integer(std::string_view name) const;  ///< also size; a word of `choices` is Error(internal): ask is_word
  double real(std::string_view name) const;      ///< any number, durations in seconds
  bool is_word(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;
  std::optional<int64_t> find_integer(std::string_view name) const;
  std::optional<double> find_real(std::string_view name) const;
  /// All values of a repeatable option, list or positional; the default's if none was given.
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<double> reals(std::string_view name) const;

  /// Sets what --config, every --set and the options that were given say, whichever of them the tool has. --config - is
  /// stdin; its text is read once, however often this is called, so that a pipe will do. Error(config), Error(io).
  void apply(Config& config) const;

 private:
  friend KEEL_API Options parse_options(const Tool& tool, const std::vector<std::string>& arguments);
  Options();
  struct State;
  std::unique_ptr<State> state_;
};

/// Parses the arguments (the program's name first). Error(usage) for an unknown option or command (with the nearest
/// name), a missing or a bad value, a missing argument. --help and its like win over errors: look at wants() first.
KEEL_API Options parse_options(const Tool& tool, const std::vector<std::string>& arguments);

/// Columns that help texts are wrapped to where nothing else is known.
inline constexpr int kHelpColumns = 100;

/// One screen ending with examples; `command` "" for the tool. Only commands to type may be longer than `columns`.
KEEL_API std::string brief_help(const Tool& tool, std::string_view command = {}, int columns = kHelpColumns);
/// Everything, grouped, with defaults, units and ranges, and the settings behind --config.
KEEL_API std::string full_help(const Tool& tool, std::string_view command = {}, int columns = kHelpColumns);
/// A completion script; shell: bash, zsh or fish.
KEEL_API std::string completion_script(const Tool& tool, std::string_view shell);
/// The declaration itself as JSON, for man pages and checks.
KEEL_API Json describe_options(const Tool& tool);

/// Options that several tools share, ready to be put into a Tool.
KEEL_API Option threads_option();                                 ///< --threads N (0 = all cores this process may use)
KEEL_API Option seed_option(const std::string& config_key = {});  ///< --seed N
KEEL_API std::vector<Option> config_options(const ConfigSchema& schema);  ///< --config --set --print-config --origins
KEEL_API Option progress_option();                                        ///< --progress auto|plain|json|none
KEEL_API Option force_option();                                           ///< --force
KEEL_API Option resume_option();                                          ///< --resume
KEEL_API Option report_option();                                          ///< --report FILE
KEEL_API std::vector<Option> device_options();                            ///< --device, --deterministic
/// Completions of KEY=VALUE: every key, and the values of those that have a list of them.
KEEL_API std::vector<std::string> setting_completions(const ConfigSchema& schema);
/// An option that sets a config key: type, unit, range, choices, default and help are the key's.
KEEL_API Option option_of_key(const ConfigSchema& schema, const std::string& key, const std::string& name);

/// The number of threads asked for by --threads; all cores this process may use if 0 or not given.
KEEL_API int threads_of(const Options& options);
/// What --device asks for: "cpu", "cuda", "cuda:N" or "cuda-emulated", well-formed; "auto" if not given. Error(usage).
KEEL_API std::string device_of(const Options& options);

}  // namespace keel
