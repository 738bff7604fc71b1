#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"

namespace keel {

struct InputFile {
  std::string path;   ///< "-" is standard input
  int64_t bytes = 0;  ///< on the disk; 0 where that is not known
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<std::string> left_out;  ///< files in named folders whose names say they are something else
  std::vector<std::string> skipped;   ///< what is below them and cannot be read: "in/a, a link that leads nowhere"
};

/// The files behind what the user typed, in the order typed:
///   a file, a pipe, or "-"    itself
///   a folder                  all files below it, sorted by path, whose name ends in .txt .text .jsonl .ndjson .json
///                             or .parquet, perhaps followed by .gz .zst .zstd; names that begin with . or _ are not
///                             looked at, links are followed, one back to a folder above is passed over
///   a pattern with * ? [      the files (not folders) that match, sorted
/// A file named twice is read twice. Error(io) for what does not exist, Error(usage) for "-" twice.
KEEL_API InputFiles find_input_files(const std::vector<std::string>& arguments);

enum class DocumentFormat { jsonl, txt };

KEEL_API const char* format_name(DocumentFormat format);

/// What an input is, by the beginning of its decompressed bytes (`whole`: there are no more), and by its name only
/// where the content leaves it open:
///   a JSON object on the first line                 jsonl, whatever the name
///   a name in .jsonl .ndjson .json, or "-"          jsonl
///   a "{" at the start, unless the name is .txt     jsonl
///   anything else                                   txt
/// Error(format) for a JSON array of objects, which this version does not read.
KEEL_API DocumentFormat detect_format(const std::string& path, std::string_view head, bool whole);

/// Error(format) if the bytes begin with the mark of UTF-16.
KEEL_API void refuse_wide_text(const std::string& path, std::string_view head);

}  // namespace keel
