#include "keel/tokenizer/input_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/json_record.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The suffix that tells the format: ".jsonl" of "a.jsonl.gz"; "" if there is none.
std::string format_suffix(const fs::path& path) {
  const std::string last = lower(path.extension().string());
  if (last == ".gz" || last == ".zst" || last == ".zstd") return lower(path.stem().extension().string());
  return last;
}

bool is_document_suffix(const std::string& suffix) {
  constexpr std::array kSuffixes = {".txt", ".text", ".jsonl", ".ndjson", ".json", ".parquet"};
  return std::find(kSuffixes.begin(), kSuffixes.end(), suffix) != kSuffixes.end();
}

bool is_pattern(const std::string& argument) {
  return argument.find_first_of("*?[") != std::string::npos;
}

InputFile input_file(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return {path, error ? 0 : static_cast<int64_t>(bytes)};
}

/// Collects the document files below a folder.
class FolderWalk {
 public:
  explicit FolderWalk(InputFiles& found) : found_(found) {}

  void walk(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) throw system_error("cannot list", folder, errno);
    const std::pair identity(status.st_dev, status.st_ino);
    if (std::find(above_.begin(), above_.end(), identity) != above_.end()) {
      return skip(folder, "a link to a folder that it lies in");
    }
    above_.push_back(identity);
    std::error_code code;
    for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) visit(*entry);
    if (code) throw system_error("cannot list", folder, code.value());
    above_.pop_back();
  }

  std::vector<std::string> sorted_paths() {
    std::sort(paths_.begin(), paths_.end());
    return std::move(paths_);
  }

 private:
  void visit(const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || name.starts_with('_')) return;
    std::error_code code;
    const fs::file_status status = entry.status(code);
    if (fs::is_directory(status)) return walk(entry.path());
    if (fs::is_regular_file(status)) {
      const bool wanted = is_document_suffix(format_suffix(entry.path()));
      (wanted ? paths_ : found_.left_out).push_back(entry.path().string());
    } else {
      skip(entry.path(), entry.is_symlink(code) ? "a link that leads nowhere" : "not a regular file");
    }
  }

  void skip(const fs::path& path, const char* why) { found_.skipped.push_back(path.string() + ", " + why); }

  InputFiles& found_;
  std::vector<std::string> paths_;
  std::vector<std::pair<dev_t, ino_t>> above_;
};

void add_folder(const std::string& folder, InputFiles& found) {
  FolderWalk walk(found);
  walk.walk(folder);
  const std::vector<std::string> paths = walk.sorted_paths();
  if (paths.empty()) {
    throw Error(ErrorKind::io, "no document files in the folder", folder,
                "names in .txt .jsonl .json (.gz .zst) are looked for; give other files by a pattern");
  }
  for (const std::string& path : paths) found.files.push_back(input_file(path));
}

void add_matches(const std::string& pattern, InputFiles& found) {
  glob_t matches{};
  const int result = glob(pattern.c_str(), GLOB_BRACE, nullptr, &matches);
  std::vector<std::string> paths;
  for (size_t i = 0; result == 0 && i < matches.gl_pathc; ++i) {
    std::error_code code;
    if (!fs::is_directory(matches.gl_pathv[i], code)) paths.emplace_back(matches.gl_pathv[i]);
  }
  globfree(&matches);
  if (paths.empty()) throw Error(ErrorKind::io, "no file matches the pattern", pattern);
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) found.files.push_back(input_file(path));
}

}  // namespace

InputFiles find_input_files(const std::vector<std::string>& arguments) {
  if (std::count(arguments.begin(), arguments.end(), "-") > 1) {
    throw Error(ErrorKind::usage, "standard input (-) can be read only once");
  }
  InputFiles found;
  for (const std::string& argument : arguments) {
    if (argument == "-") {
      found.files.push_back({argument, 0});
    } else if (fs::is_directory(argument)) {
      add_folder(argument, found);
    } else if (fs::exists(argument)) {
      found.files.push_back(input_file(argument));
    } else if (is_pattern(argument)) {
      add_matches(argument, found);
    } else {
      require_file(argument);
    }
  }
  return found;
}

const char* format_name(DocumentFormat format) {
  return format == DocumentFormat::jsonl ? "jsonl" : "txt";
}

DocumentFormat detect_format(const std::string& path, std::string_view head, bool whole) {
  const std::string suffix = path == "-" ? ".jsonl" : format_suffix(path);
  const bool named_json = suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json";
  const bool named_text = suffix == ".txt" || suffix == ".text";
  const size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string_view content = head.substr(first);
  if (content.starts_with('[')) {
    const std::string_view inner = content.substr(std::min(content.find_first_not_of(" \t\r\n", 1), content.size()));
    if (named_json || inner.starts_with('{')) {
      throw Error(ErrorKind::format, "a JSON array where records, one a line, are wanted", source_name(path),
                  "turn it into jsonl first, as with jq -c '.[]'");
    }
  }
  if (content.starts_with('{')) {
    const std::string_view line = content.substr(0, content.find('\n'));
    const JsonFault fault = JsonRecordScanner({}).scan(line);
    const bool cut_off = !whole && line.size() == content.size();
    if (fault.what == nullptr || (cut_off && fault.cut_off)) {
      return DocumentFormat::jsonl;
    }
    return named_text ? DocumentFormat::txt : DocumentFormat::jsonl;
  }
  return named_json ? DocumentFormat::jsonl : DocumentFormat::txt;
}

void refuse_wide_text(const std::string& path, std::string_view head) {
  if (!head.starts_with("\xFF\xFE") && !head.starts_with("\xFE\xFF")) return;
  throw Error(ErrorKind::format, "UTF-16 where UTF-8 is wanted", source_name(path),
              "convert it first, as with iconv -f UTF-16 -t UTF-8");
}

}  // namespace keel
