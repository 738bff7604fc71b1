#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/tokenizer/encode.h"
#include "keel/tokenizer/token_dataset.h"
#include "keel/tokenizer/tokenizer.h"

/// What keel-tokenize prints for people and shells.
namespace keel {

/// Takes the next piece of output.
using TextOutput = std::function<void(std::string_view)>;

struct IdsOptions {
  /// BOS and EOS around each text where the tokenizer's files say so; the files of a sentencepiece model say nothing:
  /// BOS first, where it has one
  bool add_special = false;
  bool whole = false;   ///< all of the input is one text; else each line
  bool pieces = false;  ///< pieces instead of ids
  SpecialText special = SpecialText::plain;
};

/// The ids (pieces) of a text, separated by spaces, without a newline.
KEEL_API std::string ids_line(const Tokenizer& tokenizer, const IdsOptions& options, std::string_view text);

/// One line a line of the input (a file, or "-" for stdin; compressed too), or one for all of it.
/// Error(format) with the line for invalid UTF-8.
KEEL_API void print_ids_of_input(const Tokenizer& tokenizer, const IdsOptions& options, const std::string& path,
                                 const TextOutput& output);

/// Documents begin .. end - 1.
struct DocumentRange {
  int64_t begin = 0, end = 0;
};

/// "3", "3:7", ":7", "3:"; all of them if absent. Error(usage) if it cannot be read or goes beyond `documents`.
KEEL_API DocumentRange parse_document_range(const std::optional<std::string>& text, int64_t documents);

struct DecodeOptions {
  bool json = false;                          ///< JSON lines {"document": k, "text": ".."}
  std::optional<std::string> separator = {};  ///< after each document; absent: a newline after each of several
};

/// A separator as typed: \n, \t, \r, \0 and \\ stand for newline, tab, carriage return, NUL and backslash. Error(usage)
/// for other backslashes.
KEEL_API std::string parse_separator(const std::string& text);

/// The text of the documents: exactly what was encoded if it is one and no separator was asked for. Error(format) for
/// ids outside the vocabulary.
KEEL_API void print_documents(const TokenDataset& data, const Tokenizer& tokenizer, const DocumentRange& range,
                              const DecodeOptions& options, const TextOutput& output);

/// The data set as a table.
KEEL_API std::string info_table(const TokenDataset& data, bool verified);

/// "data/c4: 356317 documents, 1.20e8 tokens ..." with a newline.
KEEL_API std::string encode_summary(const EncodeResult& result, const std::string& out);

/// "read = written + dropped" for each file that lost documents (the first 20) and for all together.
KEEL_API std::vector<std::string> source_lines(const EncodeResult& result);

}  // namespace keel
