#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

enum class ConfigType {
  boolean,
  integer,
  real,
  text,
  choice,        ///< one of `choices`
  size,          ///< bytes: integer >= 0, also as text "8GB", "1Gi" (quantity.h)
  amount,        ///< integer >= 0, also as text "100B", "1k" (quantity.h)
  duration,      ///< seconds >= 0, also as text "2h30m"
  integer_list,  ///< each element within minimum .. maximum
  real_list,
  text_list,
  any,  ///< any JSON value; the caller checks it (and says where by Config::where(key, pointer))
};

/// One setting, declared once: parsing, checks, help, completion and printing come from it.
struct ConfigKey {
  std::string path = {};               ///< "train.steps"; one dot a level
  ConfigType type = ConfigType::text;  ///
  std::string initial = {};            ///< default as JSON text ("0.9", "[0.9, 0.95]", "\"cosine\""); "" = absent
  std::string unit = {};               ///< "tokens", "seconds"
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;             ///< minimum itself is refused
  std::vector<std::string> choices = {};  ///< of a choice; for other types words allowed beside the value ("auto")
  std::string help = {};                  ///< one line
};

/// The list of settings. Cheap to copy.
class KEEL_API ConfigSchema {
 public:
  /// Error(internal) if a path occurs twice, is also a group, or a default does not pass its own checks.
  explicit ConfigSchema(std::vector<ConfigKey> keys);

  const std::vector<ConfigKey>& keys() const noexcept;
  /// nullptr if there is none.
  const ConfigKey* find(std::string_view path) const noexcept;
  bool is_group(std::string_view path) const noexcept;
  /// Error(config) with the nearest name unless `path` is a key.
  const ConfigKey& at(std::string_view path, const std::string& where = {}) const;

 private:
  friend class Config;
  struct State;
  std::shared_ptr<const State> state_;
};

/// Layers in rising precedence, whatever the order in which they are applied.
enum class ConfigLayer { initial, recipe, file, set, flag };

/// Where a value came from.
struct ConfigOrigin {
  ConfigLayer layer = ConfigLayer::initial;
  std::string name = {};  ///< recipe's or file's name, the text after --set, the flag ("--steps")
  JsonPosition position = {};

  /// "default", "recipe:X", "file.json:12", "--set", "flag --steps".
  KEEL_API std::string text() const;
  /// For messages: "default", "recipe:X:12:3", "file.json:12:3", "--set train.steps=0", "--steps".
  KEEL_API std::string where() const;
};

/// All settings with their values and origins. JSON null means absent: it takes back what lower layers said, so that
/// the default holds again, if there is one.
class KEEL_API Config {
 public:
  explicit Config(const ConfigSchema& schema);
  Config(const Config&);
  Config& operator=(const Config&);
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;
  ~Config();

  /// Every value below `pointer` of a document: groups nested, unknown keys, wrong types and values out of range are
  /// Error(config) with file:line:column and the nearest name. layer: recipe or file.
  void apply(const JsonDocument& document, ConfigLayer layer, std::string_view pointer = {});
  /// read_json and apply.
  void apply_file(const std::filesystem::path& path, ConfigLayer layer = ConfigLayer::file,
                  std::string_view pointer = {});
  /// "KEY=VALUE", VALUE as JSON if it is JSON, else as text. Error(config) names the whole argument.
  void apply_set(const std::string& assignment);
  /// The value of an option, JSON if it is JSON, else text. `flag` is the option's name ("--steps").
  void apply_flag(std::string_view key, const std::string& value, const std::string& flag);
  /// A value the program decides (vocab_size from the data), with an origin that says from where.
  void apply_value(std::string_view key, const Json& value, const ConfigOrigin& origin);

  /// For the hint of "must be given": the option that sets this key ("--steps N").
  void name_option(std::string_view key, const std::string& option);

  const ConfigSchema& schema() const noexcept;

  /// False if the key has neither a value nor a default. A key that was not declared is Error(internal), here and
  /// below.
  bool has(std::string_view key) const;
  /// True if some layer above the defaults gave it.
  bool is_given(std::string_view key) const;
  /// Values; Error(config) "train.steps must be given" if absent. A word of `choices` is not a number: ask is_word
  /// first.
  bool boolean(std::string_view key) const;
  int64_t integer(std::string_view key) const;   ///< also size, amount
  double real(std::string_view key) const;       ///< also integer, size, amount, duration
  std::string text(std::string_view key) const;  ///< also choice, and the words of other types
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  const Json& value(std::string_view key) const;
  /// True if the value is one of the words declared beside a number ("auto").
  bool is_word(std::string_view key) const;

  /// Values that may be absent.
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_real(std::string_view key) const;
  std::optional<std::string> find_text(std::string_view key) const;

  const ConfigOrigin& origin(std::string_view key) const;
  /// Where the value stands, for messages; with a pointer ("/0/weight") inside a list or object.
  std::string where(std::string_view key, std::string_view pointer = {}) const;
  /// Error(config) about a value: "<message> (where): hint".
  Error error(std::string_view key, const std::string& message, const std::string& hint = {}) const;

  /// Resolved values as nested groups, in the order of the schema; absent ones are left out.
  Json to_json() const;
  /// to_json as text, or with origins one line a key: "train.steps = 300    # file.json:12". Ends with a newline.
  std::string print(bool origins) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A key whose values differ, as JSON text; "absent" for none.
struct ConfigDifference {
  std::string key;
  std::string before;
  std::string after;
};

/// Keys in which two configs of the same schema differ, in the schema's order. Numbers compare by value.
KEEL_API std::vector<ConfigDifference> differences(const Config& before, const Config& after);

}  // namespace keel
