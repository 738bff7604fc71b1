#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/progress.h"
#include "keel/tokenizer/document.h"
#include "keel/tokenizer/encoded_block.h"
#include "keel/tokenizer/input_files.h"
#include "keel/tokenizer/record_reader.h"
#include "keel/tokenizer/shard_set.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

struct EncodeOptions {
  std::optional<DocumentFormat> format = {};  ///< nothing: by content
  RecordRule text_rule = {RecordRule::Kind::whole};
  DocumentOptions documents = {};  ///< max_record_bytes is set from max_bytes
  bool append_eod = true;
  bool prepend_bos = false;
  SpecialText special = SpecialText::plain;
  int64_t shard_tokens = 1'000'000'000;
  double validation_fraction = 0;
  std::optional<TokenDtype> type = {};            ///< nothing: by the tokenizer's largest id
  bool skip_errors = false;                       ///< drop bad records instead of stopping
  std::optional<int64_t> max_errors = {};         ///< more stop the run
  std::optional<double> max_error_fraction = {};  ///< of the records read; more stop the run
  bool keep_empty = false;
  int64_t split_long = 0;
  int64_t part = 0, parts = 1;
  int workers = 1;
};

/// What became of one input file. records = documents + drops.total().
struct SourceInfo {
  InputFile file;
  DocumentFormat format = DocumentFormat::jsonl;
  std::string compression = "none";
  std::string xxh3 = {};  ///< of the file as it lies on the disk; "" if only a part was read
  bool read = false;
  int64_t records = 0, documents = 0, tokens = 0;
  DropCounts drops = {};
};

/// An error in the input.
struct InputError {
  int64_t file = 0;
  DropNotice notice = {};
};

struct EncodeResult {
  TokenDtype type = TokenDtype::uint16;
  int64_t records = 0;    ///< read; documents + drops.total()
  int64_t documents = 0;  ///< written
  DropCounts drops = {};
  int64_t tokens = 0;
  int64_t text_bytes = 0;  ///< of the documents written, as UTF-8
  int64_t empty_files = 0, damaged_files = 0;
  int64_t replaced_bytes = 0, replaced_surrogates = 0;
  double seconds = 0;
  std::vector<DataManifest::Shard> shards;  ///< train, then val
  std::vector<SourceInfo> sources;
  std::vector<InputError> errors;  ///< the first 100
};

/// Reads, encodes and writes shards train-NNNNN and val-NNNNN into `folder`, which exists. The files depend on the
/// input and the options alone, not on the number of workers. Error(format) for the first bad record "what (file:line):
/// hint", for too many of them, and if nothing comes out; Error(io); Error(config) if the tokenizer lacks a token that
/// is wanted or has ids beyond the type; Stopped. Memory: about 2 MiB a worker for blocks, what the tokenizer takes
/// (tokenizer.h), 12 bytes a sequence of the open shard, and for a document above 256 KiB some eight times its bytes.
KEEL_API EncodeResult encode_files(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer,
                                   const EncodeOptions& options, const std::filesystem::path& folder,
                                   Progress& progress);

}  // namespace keel
