#include "keel/eval/data_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/eval/row_processing.h"
#include "keel/tokenizer/byte_source.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{2} << 30;      // decompressed, of one file
constexpr int64_t kProbeBytes = 1 << 18;             // read first
constexpr int64_t kMaxRowBytes = int64_t{64} << 20;  // of the first row
constexpr size_t kMaxFiles = 100'000;
constexpr int kMaxDepth = 16;

std::vector<std::string> words_of(std::string_view path) {
  std::vector<std::string> words;
  std::string word;
  for (char c : std::string(path) + "/") {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

/// The words of a path that name a split; `split` names itself.
std::string split_of(const std::string& word, const std::string& split) {
  if (word == split) return split;
  if (word == "train" || word == "test" || word == "validation") return word;
  if (word == "valid" || word == "val" || word == "dev") return "validation";
  return "";
}

bool is_of_split(const std::vector<std::string>& words, const std::string& split) {
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const std::string named = split_of(*word, split);
    if (!named.empty()) return named == split;
  }
  return false;
}

/// The JSON object at the beginning of a text; empty if it has no end.
std::string_view first_object(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return text.substr(0, i + 1);
    }
  }
  return {};
}

constexpr std::string_view kJsonSpace = " \t\r\n";

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text.substr(std::min(text.find_first_not_of(kJsonSpace), text.size()));
}

const Json* field_at(const Json& row, const std::string& path) {
  const Json* value = &row;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    if (!value->is_object()) return nullptr;
    const auto found = value->find(path.substr(at, dot - at));
    if (found == value->end()) return nullptr;
    value = &*found;
    at = dot + 1;
  }
  return value;
}

bool has_fields(const Json& row, const RowLayout& layout) {
  return row.is_object() && std::all_of(layout.fields.begin(), layout.fields.end(),
                                        [&](const std::string& field) { return field_at(row, field) != nullptr; });
}

void set_field(Json& row, const std::string& path, Json value) {
  Json* at = &row;
  size_t begin = 0;
  for (size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    at = &(*at)[path.substr(begin, dot - begin)];
  }
  (*at)[path.substr(begin)] = std::move(value);
}

/// True for a template that is one field, which the row does not have.
bool is_absent(const Template& source, const Json& row) {
  static const std::regex one_field(R"(\{\{\s*([A-Za-z_]\w*)\s*\}\})");
  std::smatch match;
  const std::string& text = source.source();
  return std::regex_match(text, match, one_field) && !row.contains(match[1].str());
}

Json in_layout(const Json& row, const RowLayout& layout) {
  if (layout.row.empty()) return row;
  Json out = Json::object();
  for (const auto& [path, source] : layout.row) {
    if (!is_absent(source, row)) set_field(out, path, source.value(row));
  }
  return out;
}

/// The row as the task's templates want it. Error(format).
Json task_row(const Task& task, const Json& row) {
  for (const RowLayout& layout : task.data.layouts) {
    if (!has_fields(row, layout)) continue;
    Json out = in_layout(row, layout);
    const RowProcessor process = find_row_processor(task.process_docs);
    return process != nullptr ? process(out) : out;
  }
  if (!row.is_object()) throw Error(ErrorKind::format, "the row is no object");
  std::string missing;
  for (const std::string& field : task.data.layouts.back().fields) {
    if (field_at(row, field) == nullptr && missing.empty()) missing = field;
  }
  throw Error(ErrorKind::format, "the row has no field " + missing);
}

/// Whether a path has a word of the task's name or its data set's.
bool bears_name(const std::vector<std::string>& words, const Task& task) {
  const fs::path dataset(task.definition.value("dataset_path", ""));
  for (const std::string& name : words_of(task.name + "/" + dataset.filename().string())) {
    if (std::find(words.begin(), words.end(), name) != words.end()) return true;
  }
  return false;
}

/// True for a link to a folder that it lies in.
bool leads_back(const fs::directory_entry& entry) {
  std::error_code code;
  if (!entry.is_symlink(code) || !entry.is_directory(code)) return false;
  const fs::path target = fs::canonical(entry.path(), code);
  const fs::path parent = fs::canonical(entry.path().parent_path(), code);
  return !code && std::mismatch(target.begin(), target.end(), parent.begin(), parent.end()).first == target.end();
}

/// Shards of one set have the same name around their numbers.
std::string without_shard_number(const std::string& path) {
  static const std::regex number(R"(-\d{5}-of-\d{5})");
  return std::regex_replace(path, number, "");
}

}  // namespace

struct DataFolder::File {
  std::string path;      // to open
  std::string relative;  // below the folder
  std::vector<std::string> words;
  std::optional<Json> first_row;  // once looked at; null if it has none
  std::optional<Error> problem;   // why it has none
};

struct DataFolder::State {
  std::string path;
  std::vector<File> files;
  std::optional<Error> passed_over;  // by the last find(): what is wrong with a file of that split
  bool own_is_damaged = false;       // and that file bears the task's name

  /// The first row of a file; null if it has none, or file.problem.
  const Json& first_row(File& file) const {
    if (file.first_row) return *file.first_row;
    file.first_row = Json();
    try {
      file.first_row = read_first_row(file.path);
    } catch (const Error& error) {
      file.problem = error;
    }
    return *file.first_row;
  }

  static Json read_first_row(const std::string& path) {
    const auto source = open_source(path);
    std::string bytes = read_start(*source, kProbeBytes);
    std::string_view row = start_of_rows(bytes);
    if (row.empty()) {
      if (without_mark(bytes).empty()) throw Error(ErrorKind::format, "the file has no rows", path);
      return {};  // something else than rows
    }
    if (first_object(row).empty()) {
      bytes += read_start(*source, kMaxRowBytes);
      row = start_of_rows(bytes);
      if (std::ssize(bytes) >= kMaxRowBytes && first_object(row).empty()) {
        throw Error(ErrorKind::format, fmt::format("the first row has more than {} bytes", kMaxRowBytes), path);
      }
    }
    const std::string_view object = first_object(row);
    return parse_json(object.empty() ? row : object, path, ErrorKind::format);
  }

  /// The text from the first row on; empty if there is none.
  static std::string_view start_of_rows(std::string_view bytes) {
    std::string_view text = without_mark(bytes);
    if (text.starts_with('[')) text = without_mark(text.substr(1));
    return text.starts_with('{') ? text : std::string_view();
  }
};

DataFolder::DataFolder(const std::string& path) : state_(std::make_unique<State>()) {
  require_directory(path);
  state_->path = path;
  const fs::path root(path);
  const std::string own_name = fs::absolute(root).lexically_normal().parent_path().filename().string() + "/" +
                               fs::absolute(root).lexically_normal().filename().string();
  std::error_code code;
  const auto options = fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(root, options, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".") || it.depth() >= kMaxDepth || leads_back(*it)) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file(ignored)) continue;
    File file{.path = it->path().string(), .relative = it->path().lexically_relative(root).string()};
    file.words = words_of(own_name + "/" + file.relative);
    state_->files.push_back(std::move(file));
    if (state_->files.size() > kMaxFiles) {
      throw Error(ErrorKind::usage, fmt::format("more than {} files", kMaxFiles), path, "name the benchmarks' folder");
    }
  }
  if (code) throw system_error("list", path, code.value());
  std::sort(state_->files.begin(), state_->files.end(),
            [](const File& a, const File& b) { return a.relative < b.relative; });
}

DataFolder::~DataFolder() = default;

std::vector<const DataFolder::File*> DataFolder::find(const Task& task, const std::string& split) {
  std::vector<const File*> found;
  state_->passed_over.reset();
  state_->own_is_damaged = false;
  for (File& file : state_->files) {
    const auto has_word = [&](const std::string& word) {
      return std::find(file.words.begin(), file.words.end(), word) != file.words.end();
    };
    if (!is_of_split(file.words, split) ||
        !std::all_of(task.data.path_words.begin(), task.data.path_words.end(), has_word)) {
      continue;
    }
    const Json& row = state_->first_row(file);
    if (file.problem && !state_->own_is_damaged) {
      state_->passed_over = file.problem;
      state_->own_is_damaged = bears_name(file.words, task);
    }
    if (std::any_of(task.data.layouts.begin(), task.data.layouts.end(),
                    [&](const RowLayout& layout) { return has_fields(row, layout); })) {
      found.push_back(&file);
    }
  }
  std::vector<const File*> distinct;  // a file that is reached by links too counts once
  for (const File* file : found) {
    std::error_code code;
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](const File* other) { return fs::equivalent(other->path, file->path, code); })) {
      distinct.push_back(file);
    }
  }
  for (const File* file : distinct) {
    if (without_shard_number(file->relative) == without_shard_number(distinct[0]->relative)) continue;
    throw Error(ErrorKind::usage,
                fmt::format("two files could be the {} split of {}: {} and {}", split, task.name, distinct[0]->relative,
                            file->relative),
                state_->path, "name with --data a folder that has one of them");
  }
  return distinct;
}

SplitRows DataFolder::read(const Task& task, const std::string& split) {
  SplitRows out{.split = split};
  for (const File* file : find(task, split)) {
    const std::string bytes = read_source(file->path, kMaxBytes);
    RowFile record{.path = file->path, .bytes = size_of_file(file->path), .sha256 = sha256_of_file(file->path)};
    const auto add = [&](const Json& row, const std::string& where) {
      try {
        out.rows.push_back(task_row(task, row));
      } catch (const Error& error) {
        throw error.at(where);
      }
      ++record.rows;
    };
    if (without_mark(bytes).starts_with('[')) {
      const Json rows = parse_json(bytes, file->path, ErrorKind::format, {.max_bytes = kMaxBytes});
      for (size_t i = 0; i < rows.size(); ++i) add(rows[i], fmt::format("{}: row {}", file->path, i));
    } else {
      int64_t line = 0;
      for (size_t at = 0; at < bytes.size();) {
        const size_t end = std::min(bytes.find('\n', at), bytes.size());
        const std::string_view text = std::string_view(bytes).substr(at, end - at);
        const std::string where = fmt::format("{}:{}", file->path, ++line);
        if (text.find_first_not_of(kJsonSpace) != std::string_view::npos) {
          add(parse_json(text, where, ErrorKind::format), where);
        }
        at = end + 1;
      }
    }
    out.files.push_back(std::move(record));
  }
  if (out.files.empty()) throw nothing_found(task, split);
  return out;
}

Error DataFolder::nothing_found(const Task& task, const std::string& split) const {
  const std::string what = fmt::format("no file holds the {} split of {}", split, task.name);
  if (state_->passed_over) {
    return {ErrorKind::format, fmt::format("{}; one was passed over: {}", what, state_->passed_over->what()),
            state_->path};
  }
  const std::string words =
      task.data.path_words.empty() ? "" : fmt::format(" has '{}' and", fmt::join(task.data.path_words, "', '"));
  return {ErrorKind::io,
          fmt::format("{}: none whose path{} names '{}' and whose rows have {}, among {}", what, words, split,
                      fmt::join(task.data.layouts.front().fields, ", "), state_->files.size()),
          state_->path, "get " + task.data.origin};
}

SplitRows DataFolder::read_or_stand_in(const Task& task, const std::string& split,
                                       const std::vector<std::string>& others) {
  if (find(task, split).empty()) {
    if (state_->own_is_damaged) throw nothing_found(task, split);
    for (const std::string& other : others) {
      if (!other.empty() && other != split && !find(task, other).empty()) return read(task, other);
    }
  }
  return read(task, split);
}

}  // namespace keel
